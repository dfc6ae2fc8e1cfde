"""What is minimised beside the error: one file each, found by itself; none imports torch."""

from deeppruning.objectives.base import (
    OBJECTIVES,
    Counted,
    Function,
    Measured,
    Objective,
    as_objective,
    register_objective,
)

ORDER = ("flops", "params", "size", "latency")

__all__ = [
    "OBJECTIVES",
    "Counted",
    "Function",
    "Measured",
    "Objective",
    "as_objective",
    "register_objective",
]
