"""Statistics of batch norms re-estimated, nothing trained."""

from deeppruning.searching.evaluations.base import EvaluationKind, Trial, register_evaluation


@register_evaluation
class Recalibrate(EvaluationKind):
    """The batch norms see the sample once more; weights stay those of the original."""

    name = "recalibrate"
    about = "with only its batch norms re-estimated (about a tenth of the time)"

    def prepare(self, trial: Trial) -> None:
        """Re-estimate in place."""
        from deeppruning.training.evaluate import recalibrate

        recalibrate(trial.network, trial.images, device=trial.device)
