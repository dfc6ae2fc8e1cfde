"""The sections of the page: every file here enters its own in `reporting/section.py`, found by itself."""
