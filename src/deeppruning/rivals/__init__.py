"""Other ways to prune, asked for the same FLOPs and fine-tuned alike, on the user's own model and data."""

from deeppruning.rivals.comparison import Rivalry, compare_methods
from deeppruning.rivals.events import MethodDone
from deeppruning.rivals.registry import METHODS, choose_methods
from deeppruning.rivals.results import Comparison

__all__ = ["METHODS", "Comparison", "MethodDone", "Rivalry", "choose_methods", "compare_methods"]
