"""Brief fine-tuning, the paper's evaluation."""

from deeppruning.searching.evaluations.base import EvaluationKind, Trial, register_evaluation


@register_evaluation
class Finetune(EvaluationKind):
    """A few epochs of SGD on the sample, by the options whose names start with eval."""

    name = "finetune"
    about = "after brief SGD"

    def prepare(self, trial: Trial) -> None:
        """Train in place."""
        from deeppruning.training.loop import fit

        fit(trial.network, trial.images, trial.options.training(trial.seed), device=trial.device)
