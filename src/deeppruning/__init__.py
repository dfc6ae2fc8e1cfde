"""DeepPruningES: prune trained convolutional networks with a multi-objective evolution strategy."""

from deeppruning.version import __version__

__all__ = ["__version__"]
