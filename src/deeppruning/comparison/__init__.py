"""Other ways to prune, asked for the same FLOPs and fine-tuned alike, on the user's own model and data."""

from deeppruning.comparison.events import MethodDone
from deeppruning.comparison.methods.registry import (
    METHODS,
    USUAL,
    choose_methods,
    register_method,
    usable_methods,
)
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.comparison.results import Comparison
from deeppruning.comparison.rivalry import Rivalry, compare_methods

__all__ = [
    "METHODS",
    "USUAL",
    "Comparison",
    "Method",
    "MethodDone",
    "Network",
    "Problem",
    "Rivalry",
    "Target",
    "choose_methods",
    "compare_methods",
    "register_method",
    "usable_methods",
]
