"""What a comparison tells whoever watches it, beside the epochs of its fine-tuning."""

from collections.abc import Callable
from dataclasses import dataclass

from deeppruning.comparison.results import Row
from deeppruning.searching.events import EpochDone, FinetuneDiverged, Remark


@dataclass(frozen=True)
class MethodDone:
    """A method's networks with one seed are fine-tuned."""

    method: str
    seed: int
    done: int  # of so many steps
    steps: int
    rows: tuple[Row, ...]


RivalEvent = MethodDone | EpochDone | FinetuneDiverged | Remark
RivalObserver = Callable[[RivalEvent], None]
