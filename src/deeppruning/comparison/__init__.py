"""Other pruning methods at the same FLOPs and with the same fine-tuning, on the user's own model and data."""

from deeppruning.comparison.problem import (
    METHODS,
    USUAL,
    Method,
    Network,
    Problem,
    Target,
    choose_methods,
    register_method,
)
from deeppruning.comparison.results import Comparison, MethodDone
from deeppruning.comparison.run import compare_methods

__all__ = [
    "METHODS",
    "USUAL",
    "Comparison",
    "Method",
    "MethodDone",
    "Network",
    "Problem",
    "Target",
    "choose_methods",
    "compare_methods",
    "register_method",
]
