"""A closed-form refit, nothing trained."""

from deeppruning.searching.evaluations.base import EvaluationKind, Trial, register_evaluation


@register_evaluation
class Refit(EvaluationKind):
    """Every layer is solved for what the original answered, in one pass; no labels, no rate, no noise."""

    name = "refit"
    about = "after a refit in closed form, without training"
    refits = True

    def prepare(self, trial: Trial) -> None:
        """Nothing: the refit is all."""
