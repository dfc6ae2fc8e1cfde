"""One candidate: from a genome to its objectives, the same wherever and whenever it is evaluated."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deeppruning.backends.base import Outcome
from deeppruning.errors import Diverged
from deeppruning.graph import ChannelGraph
from deeppruning.objectives import Objective, as_objective
from deeppruning.pruning.task import Task
from deeppruning.runs.records import Evaluation, Status

Genome = NDArray[np.bool_]


@dataclass(frozen=True)
class Context:
    """What every evaluation needs; sent to each worker once."""

    graph: ChannelGraph
    task: Task
    objective: Objective | str | Callable[[nn.Module], float]  # a name only where workers know it, too
    example_input: Any
    seed: int
    device: str = "cpu"  # what latency is measured on


@dataclass(frozen=True)
class Measured:
    """The objectives of a candidate, None where it has none, and then why."""

    error: float | None
    cost: float | None
    status: Status = Status.OK
    reason: str = ""

    @classmethod
    def nothing(cls, status: Status, reason: str) -> "Measured":
        """A candidate that came to nothing."""
        return cls(None, None, status, reason)


def evaluate_candidate(context: Context, genome: Genome) -> Measured:
    """Cut from the original weights, train briefly, measure.

    Nothing is inherited from other candidates, and the seed follows from the run's seed and the
    genome alone: which worker does it, in what order, makes no difference.
    """
    thin = context.graph.prune(genome)
    cost = cost_of(context, thin, genome)
    if not math.isfinite(cost):
        return Measured.nothing(Status.FAILED, f"the second objective is {cost}, not a finite number")
    try:
        error = float(context.task.candidate_error(thin, candidate_seed(context.seed, genome)))
    except Diverged as diverged:
        return Measured.nothing(Status.DIVERGED, str(diverged))
    if not math.isfinite(error):
        return Measured.nothing(Status.DIVERGED, f"the error is {error}, not a finite number")
    return Measured(error, cost)


def settle(context: Context, genome: Genome, outcome: Outcome[Any, Measured]) -> Evaluation:
    """What is kept of a candidate once it is evaluated, be it objectives or the reason for having none."""
    measured = outcome.value
    if measured is None:
        measured = Measured.nothing(Status.FAILED, outcome.failure or "its worker gave no reason")
    return Evaluation(
        genome=genome,
        error=measured.error,
        cost=measured.cost,
        flops=context.graph.flops(genome),
        params=context.graph.params(genome),
        seconds=outcome.seconds,
        worker=outcome.worker,
        status=measured.status,
        detail=measured.reason,
    )


def candidate_seed(seed: int, genome: Genome) -> int:
    """A seed that follows from the run's seed and the genome alone."""
    digest = hashlib.sha256(f"{seed}/".encode() + np.packbits(genome).tobytes()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def cost_of(context: Context, thin: nn.Module, genome: Genome) -> float:
    """The second objective of a thin network."""
    objective = as_objective(context.objective)
    return objective.cost(context.graph, genome, thin, context.example_input, context.device)
