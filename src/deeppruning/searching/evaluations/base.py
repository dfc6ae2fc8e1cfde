"""What an evaluation kind is, and what it is given."""

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
    """A candidate just cut from the original's weights, with the images it is judged on."""

    network: nn.Module
    images: ImageSet
    options: SearchConfig
    seed: int  # of whatever is random
    device: str


class EvaluationKind(ABC):
    """What happens to a candidate before its error is measured. Instances travel to worker processes."""

    name: str
    about: str = "in a way of its own"  # the end of "How a candidate is judged: ..."
    # Whether candidates are refitted on a part of the sample before `prepare`, and judged on the rest of it.
    refits: bool = False

    @abstractmethod
    def prepare(self, trial: Trial) -> None:
        """Change the network in place; the error on the images is measured afterwards."""


EVALUATIONS: Registry[EvaluationKind] = Registry("evaluation", "deeppruning.searching.evaluations")
Class = TypeVar("Class", bound=type[EvaluationKind])


def register_evaluation(kind: Class) -> Class:
    """Enter an evaluation kind under its name."""
    EVALUATIONS.add(kind())
    return kind
