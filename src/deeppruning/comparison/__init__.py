"""Other ways to prune, asked for the same FLOPs and fine-tuned alike, on the user's own model and data."""

from deeppruning.comparison.events import MethodDone
from deeppruning.comparison.methods.registry import METHODS, choose_methods
from deeppruning.comparison.results import Comparison
from deeppruning.comparison.rivalry import Rivalry, compare_methods

__all__ = ["METHODS", "Comparison", "MethodDone", "Rivalry", "choose_methods", "compare_methods"]
