"""Evaluation kinds: how a candidate is prepared before its error is measured.

Names of kinds are options, which are checked without torch: it is imported where it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from deeppruning.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from deeppruning.config import SearchConfig
    from deeppruning.data.images import ImageSet


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate just cut from the original's weights, with the images it is prepared on."""

    network: nn.Module
    images: ImageSet
    options: SearchConfig
    seed: int  # of everything random
    device: str


class EvaluationKind(ABC):
    """What happens to a candidate before its error is measured. Instances are sent to worker processes."""

    name: str
    about: str = "in a way of its own"  # the end of "How a candidate is judged: ..."
    # Candidates are refitted on a part of the sample before `prepare`, and judged on the rest of it.
    refits: bool = False

    @abstractmethod
    def prepare(self, trial: Trial) -> None:
        """Change the network in place; the error on the images is measured afterwards."""


EVALUATIONS: Registry[EvaluationKind] = Registry("evaluation", "deeppruning.searching.evaluations")
Class = TypeVar("Class", bound=type[EvaluationKind])


def register_evaluation(kind: Class) -> Class:
    """Register an evaluation kind under its name."""
    EVALUATIONS.add(kind())
    return kind


def refits(search: SearchConfig) -> bool:
    """Whether the evaluation that the options name refits candidates; a task asks its own kind."""
    return EVALUATIONS.find(search.evaluation).refits


@register_evaluation
class Refit(EvaluationKind):
    """Every layer is solved for what the original answered, in one pass, without labels or training."""

    name = "refit"
    about = "after a refit in closed form, without training"
    refits = True

    def prepare(self, trial: Trial) -> None:
        """Nothing is left to do after the refit."""


@register_evaluation
class Finetune(EvaluationKind):
    """The paper's: a few epochs of SGD on the sample, by the options with names that start with eval."""

    name = "finetune"
    about = "after brief SGD"

    def prepare(self, trial: Trial) -> None:
        """Train in place."""
        from deeppruning.training.loop import fit

        fit(trial.network, trial.images, trial.options.training(trial.seed), device=trial.device)


@register_evaluation
class Recalibrate(EvaluationKind):
    """The statistics of batch norms are estimated again on the sample; weights stay those of the original."""

    name = "recalibrate"
    about = "with only its batch norms re-estimated (about a tenth of the time)"

    def prepare(self, trial: Trial) -> None:
        """Estimate the statistics in place."""
        from deeppruning.training.evaluate import recalibrate

        recalibrate(trial.network, trial.images, device=trial.device)
