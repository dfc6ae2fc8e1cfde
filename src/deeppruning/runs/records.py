"""The rows of a run's history as plain values."""

import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum

from deeppruning.errors import InputError, unknown
from deeppruning.genome import Genome


class Status(str, Enum):
    """The outcome of an evaluation; equal to its text, so that it is written and compared as text."""

    OK = "ok"
    DIVERGED = "diverged"  # a loss, an error or weights are not finite
    FAILED = "failed"  # it raised, its worker died, or the second objective is not a finite number

    __str__ = str.__str__


def now() -> str:
    """The time in UTC, to the second, in ISO form."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """The evaluation of one genome; `cost` is the second objective, FLOPs or something else.

    A candidate that diverged or failed has neither error nor cost.
    """

    genome: Genome
    error: float | None  # in the search, see `Candidate.train_error`
    cost: float | None
    flops: int
    params: int
    seconds: float = 0.0
    worker: str = ""
    status: Status = Status.OK
    detail: str = ""  # why it diverged, or the traceback of a failure
    finished_at: str = field(default_factory=now)
    score: float | None = None  # what the search selects by, if that is not the error

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "status", Status(self.status))
        except ValueError:
            raise unknown("status", str(self.status), [status.value for status in Status]) from None
        if not math.isfinite(self.seconds):
            raise InputError(f"seconds of an evaluation must be finite, got {self.seconds}")
        for name in ("error", "cost"):
            value = getattr(self, name)
            if self.status is not Status.OK and value is not None:
                raise InputError(f"a candidate that {self.status} has no {name}, got {value}; give None")
            if self.status is Status.OK and (value is None or not math.isfinite(value)):
                raise InputError(
                    f"{name} of an evaluation must be finite, got {value}; a candidate without one has "
                    "diverged or failed: give it that status"
                )
        if self.score is not None and (self.status is not Status.OK or not math.isfinite(self.score)):
            raise InputError(
                f"score of an evaluation must be finite, and None for one that diverged or failed, got "
                f"{self.score} for one that is {self.status}"
            )

    @property
    def objectives(self) -> tuple[float, float]:
        """Error and cost, both nan for a candidate that has none."""
        if self.error is None or self.cost is None:
            return math.nan, math.nan
        return self.error, self.cost

    @property
    def judged(self) -> float:
        """What the search selects by: the score, or else the error; nan for a candidate that has none."""
        if self.score is not None:
            return self.score
        return math.nan if self.error is None else self.error

    @property
    def reason(self) -> str:
        """Why a candidate has no objectives, in one line: the end of the traceback; empty if it has."""
        return (self.detail.strip().splitlines() or [""])[-1] if self.status is not Status.OK else ""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A genome that was proposed, with its number and, once it is evaluated, its evaluation.

    `train_error` is its error in the search: after a refit the error on images of the sample that the refit
    did not use, after brief training, as in the paper, the error on the images it was trained on, and in a
    search without labels the drift of its outputs from the original's. It is never an error on the test data.
    A candidate that diverged or failed has neither error nor cost, but a `reason`. `operator` is the operator
    that proposed it and `parents` are the ids of its parents; both are empty if the strategy does not report
    them.
    """

    id: int
    generation: int
    genome: Genome
    evaluation: Evaluation | None = None
    operator: str = ""
    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if any(not 0 <= parent < self.id for parent in self.parents):
            raise InputError(
                f"the parents of candidate {self.id} must be candidates before it, got {list(self.parents)}"
            )

    @property
    def evaluated(self) -> Evaluation:
        """Its evaluation; an error if it has not been evaluated yet."""
        if self.evaluation is None:
            raise InputError(f"candidate {self.id} has not been evaluated yet; resume the run")
        return self.evaluation

    @property
    def train_error(self) -> float | None:
        """The error that the search measured, see above; None if the candidate diverged or failed."""
        return self.evaluated.error

    @property
    def cost(self) -> float | None:
        """The second objective, FLOPs or something else."""
        return self.evaluated.cost

    @property
    def flops(self) -> int:
        """Multiply-adds for one input."""
        return self.evaluated.flops

    @property
    def params(self) -> int:
        """Parameters of the thin network."""
        return self.evaluated.params

    @property
    def status(self) -> Status:
        """The outcome of its evaluation."""
        return self.evaluated.status

    @property
    def reason(self) -> str:
        """Why it has no objectives, in one line; empty if it has."""
        return self.evaluated.reason


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
