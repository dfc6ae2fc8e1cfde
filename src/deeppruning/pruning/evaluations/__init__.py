"""How a candidate is brought to the state it is judged in: one file each, found by itself."""

from deeppruning.pruning.evaluations.base import EvaluationKind, Trial, register_evaluation
from deeppruning.registry import EVALUATIONS

ORDER = ("refit", "finetune", "recalibrate")

__all__ = ["EVALUATIONS", "EvaluationKind", "Trial", "register_evaluation"]
