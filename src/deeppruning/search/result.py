"""What a run hands back: the original, the three picks, and every candidate ever evaluated."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deeppruning.runs.history import History


@dataclass(frozen=True, eq=False)
class Original:
    """The network as it was given, measured."""

    train_error: float | None  # on the search's sample
    test_error: float | None
    flops: int
    params: int


@dataclass(frozen=True, eq=False)
class Candidate:
    """One genome that was evaluated; `train_error` is that of the search, after brief training."""

    id: int
    generation: int
    genome: NDArray[np.bool_]
    train_error: float
    cost: float
    flops: int
    params: int
    status: str


@dataclass(frozen=True, eq=False)
class Solution:
    """A pick: a thin, fine-tuned network and what it costs."""

    role: str
    id: int
    model: nn.Module
    genome: NDArray[np.bool_]
    train_error: float  # in the search, on its sample
    test_error: float | None  # after fine-tuning
    flops: int
    flops_pruned: float  # share of the original's, 0..1
    params: int
    path: Path


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run; four networks to choose from, and all that was tried on the way."""

    original: Original
    knee: Solution
    heavy: Solution
    light: Solution
    candidates: list[Candidate] = field(repr=False)
    run_dir: Path

    @property
    def solutions(self) -> tuple[Solution, Solution, Solution]:
        """Heavy, knee, light: from the most accurate to the cheapest."""
        return self.heavy, self.knee, self.light


def read_candidates(history: History) -> list[Candidate]:
    """Every candidate that has been evaluated so far, by id."""
    return [
        Candidate(
            id=row.id,
            generation=row.generation,
            genome=row.genome,
            train_error=row.evaluation.error,
            cost=row.evaluation.cost,
            flops=row.evaluation.flops,
            params=row.evaluation.params,
            status=row.evaluation.status,
        )
        for row in history.candidates()
        if row.evaluation is not None
    ]
