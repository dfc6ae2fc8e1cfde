"""What a run tells whoever watches it: a terminal, a log, a machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deeppruning.jobs.solution import Solution
from deeppruning.runs.records import Candidate
from deeppruning.training.checkpoint import EpochReport


@dataclass(frozen=True)
class Started:
    """The network is understood and the original measured; the search begins or goes on."""

    run: str
    genes: int
    generations: int
    evaluations: int  # of the whole run
    known: int  # of them, evaluated before this process started
    original_error: float | None  # on the search's sample, None where the task cannot say
    original_flops: int
    original_params: int
    widths: str = ""  # in which multiples, where that was measured


@dataclass(frozen=True)
class Remark:
    """Something that people should know, about "original", "network", "augmentation" or "processor"."""

    about: str
    text: str


@dataclass(frozen=True)
class LayersScanned:
    """A guided search looks at each layer by itself before its first candidate; so many cuts are done."""

    done: int
    of: int


@dataclass(frozen=True)
class CandidateDone:
    """One candidate has its objectives, or none; `fresh` is false where that was known already."""

    candidate: Candidate
    fresh: bool
    attempts: int = 1


@dataclass(frozen=True)
class GenerationDone:
    """A generation has been selected from."""

    generation: int
    generations: int
    picks: Mapping[str, Candidate]  # by role
    original_flops: int


@dataclass(frozen=True)
class EpochDone:
    """One epoch of fine-tuning one candidate, in the roles it holds; epoch 0 is the network before it."""

    id: int
    roles: tuple[str, ...]
    epochs: int
    report: EpochReport


@dataclass(frozen=True)
class FinetuneDiverged:
    """The fine-tuning of a candidate diverged; it starts again, or has failed."""

    id: int
    roles: tuple[str, ...]
    reason: str
    lr_factor: float | None  # of the rate that it starts again with; None if it is given up


@dataclass(frozen=True)
class SolutionSaved:
    """A fine-tuned network is on disk."""

    solution: Solution


@dataclass(frozen=True)
class TargetSettled:
    """The limits that were asked for are met, or not: then it says how near the nearest candidate comes."""

    role: str  # of the target
    asked: str
    met: bool
    note: str


@dataclass(frozen=True)
class CandidateRefused:
    """The proof of a candidate that was to be handed out has failed; the next best takes its place."""

    id: int
    reason: str


Event = (
    Started
    | Remark
    | LayersScanned
    | CandidateDone
    | GenerationDone
    | EpochDone
    | FinetuneDiverged
    | SolutionSaved
    | TargetSettled
    | CandidateRefused
)
Observer = Callable[[Event], None]


def ignore(event: object) -> None:
    """The observer that looks away."""
