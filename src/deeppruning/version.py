"""The one place where the version is written."""

__version__ = "1.0.0"
