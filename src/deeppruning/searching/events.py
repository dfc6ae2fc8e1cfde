"""The events of a run that observers receive: a terminal, a log, a machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deeppruning.runs.records import Candidate
from deeppruning.training.checkpoint import EpochReport


@dataclass(frozen=True)
class Stage:
    """A step of the preparations begins, or has come as far as `done` of `of`, where that is known.

    Its name is "data", "graph", "widths", "original", "orders", "reference" or "scan"; or "networks", the
    first step of the selected ones after the search.
    """

    name: str
    done: int = 0
    of: int = 0


@dataclass(frozen=True)
class Started:
    """The network is analysed and the original measured; the search begins or continues."""

    run: str
    genes: int
    generations: int | None  # None if the search is ended by its time alone
    evaluations: int | None  # of the whole run
    known: int  # of these, evaluated before this process started
    original_error: float | None  # on the search's sample, None where the task has none
    original_flops: int
    original_params: int
    widths: str = ""  # the multiples of filters, where they were measured


@dataclass(frozen=True)
class Remark:
    """A note for people.

    It is about the "sample", "original", "network", "augmentation", "processor", "memory", "budget" or a
    "tracker".
    """

    about: str
    text: str


@dataclass(frozen=True)
class LayersScanned:
    """A guided search cuts each layer by itself before its first candidate: `done` of these cuts."""

    done: int
    of: int


@dataclass(frozen=True)
class CandidateDone:
    """A candidate is evaluated; `fresh` is false where the evaluation was known already."""

    candidate: Candidate
    fresh: bool
    attempts: int = 1


@dataclass(frozen=True)
class GenerationDone:
    """The survivors of a generation are selected."""

    generation: int
    generations: int | None  # None if the search is ended by its time alone
    picks: Mapping[str, Candidate]  # by role
    original_flops: int


@dataclass(frozen=True)
class EpochDone:
    """One epoch of fine-tuning a candidate, with its roles; epoch 0 is the network before training."""

    id: int
    roles: tuple[str, ...]
    epochs: int
    report: EpochReport


@dataclass(frozen=True)
class FinetunePlanned:
    """Length, learning rate and number format of a candidate's fine-tuning, measured before it starts."""

    id: int
    roles: tuple[str, ...]
    epochs: float
    lr: float
    losses: Mapping[str, float] | None  # after the trial of each learning rate; None if none was tried
    step_seconds: float | None  # where a time was given
    precision: str = "auto"


@dataclass(frozen=True)
class FinetuneDiverged:
    """The fine-tuning of a candidate diverged; it is repeated at a lower learning rate, or has failed."""

    id: int
    roles: tuple[str, ...]
    reason: str
    lr_factor: float | None  # of the learning rate it is repeated with; None if it has failed


class SavedNetwork(Protocol):
    """A solution, as the events name it."""

    @property
    def role(self) -> str: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def refitted(self) -> bool: ...


@dataclass(frozen=True)
class SolutionSaved:
    """A fine-tuned network is saved."""

    solution: SavedNetwork


@dataclass(frozen=True)
class TargetSettled:
    """The limits of a target are met, or not: then the note describes the nearest candidate."""

    role: str  # of the target
    asked: str
    met: bool
    note: str


@dataclass(frozen=True)
class CandidateRefused:
    """The proof of a chosen candidate has failed; the next best replaces it."""

    id: int
    reason: str


Event = (
    Stage
    | Started
    | Remark
    | LayersScanned
    | CandidateDone
    | GenerationDone
    | EpochDone
    | FinetuneDiverged
    | FinetunePlanned
    | SolutionSaved
    | TargetSettled
    | CandidateRefused
)
Observer = Callable[[Event], None]


def ignore(event: object) -> None:
    """An observer that does nothing."""
