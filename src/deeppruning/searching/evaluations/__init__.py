"""How a candidate is brought to the state it is judged in: one file each, found by itself."""

from deeppruning.searching.evaluations.base import EVALUATIONS, EvaluationKind, Trial, register_evaluation

ORDER = ("refit", "finetune", "recalibrate")

__all__ = ["EVALUATIONS", "EvaluationKind", "Trial", "register_evaluation"]
