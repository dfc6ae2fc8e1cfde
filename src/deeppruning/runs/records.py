"""The rows of a run's history as plain values."""

import math
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError, unknown

STATUSES = ("ok", "diverged", "failed")


def now() -> str:
    """The time in UTC, to the second, in ISO form."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """What one genome came to; `cost` is the second objective, which may be FLOPs or something else."""

    genome: NDArray[np.bool_]
    error: float
    cost: float
    flops: int
    params: int
    seconds: float
    worker: str
    status: str = "ok"
    detail: str = ""  # the traceback of a failure
    finished_at: str = field(default_factory=now)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise unknown("status", self.status, STATUSES)
        for name in ("error", "cost", "seconds"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(
                    f"{name} of an evaluation must be finite, got {getattr(self, name)}; a candidate that "
                    "diverged or failed has the worst error, 1.0"
                )


@dataclass(frozen=True, eq=False)
class CandidateRow:
    """A genome that was proposed, with its evaluation once there is one."""

    id: int
    generation: int
    genome: NDArray[np.bool_]
    evaluation: Evaluation | None


@dataclass(frozen=True)
class PickRow:
    """Which candidate held which role after a generation."""

    generation: int
    role: str
    candidate_id: int


@dataclass(frozen=True)
class EpochRow:
    """One epoch of fine-tuning one solution; without a test set there is no test error."""

    solution: str
    epoch: int
    train_loss: float | None
    train_error: float | None
    test_error: float | None
    lr: float
    seconds: float
