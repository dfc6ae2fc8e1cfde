"""One candidate: from a genome to its objectives, the same wherever and whenever it is evaluated."""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeppruning.graph import ChannelGraph
from deeppruning.search.task import Task
from deeppruning.training.loop import Diverged

Genome = NDArray[np.bool_]
Objective = str | Callable[[nn.Module], float]


@dataclass(frozen=True)
class Context:
    """What every evaluation needs; sent to each worker once."""

    graph: ChannelGraph
    task: Task
    objective: Objective  # "flops", "params", "latency", or a function of the thin network
    example_input: Any
    seed: int


@dataclass(frozen=True)
class Measured:
    """The objectives of a candidate, and whether its training held."""

    error: float
    cost: float
    diverged: bool = False


def evaluate_candidate(context: Context, genome: Genome) -> Measured:
    """Cut from the original weights, train briefly, measure.

    Nothing is inherited from other candidates, and the seed follows from the run's seed and the
    genome alone: which worker does it, in what order, makes no difference.
    """
    thin = context.graph.prune(genome)
    cost = cost_of(context, thin, genome)
    try:
        error = float(context.task.candidate_error(thin, candidate_seed(context.seed, genome)))
    except Diverged:
        error = math.nan
    if not math.isfinite(error):
        return Measured(context.task.worst_error, cost, diverged=True)
    return Measured(error, cost)


def candidate_seed(seed: int, genome: Genome) -> int:
    """A seed that follows from the run's seed and the genome alone."""
    digest = hashlib.sha256(f"{seed}/".encode() + np.packbits(genome).tobytes()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def cost_of(context: Context, thin: nn.Module, genome: Genome) -> float:
    """The second objective of a thin network."""
    if context.objective == "flops":
        return float(context.graph.flops(genome))
    if context.objective == "params":
        return float(context.graph.params(genome))
    if context.objective == "latency":
        return measure_latency(thin, context.example_input)
    assert callable(context.objective)
    return float(context.objective(thin))


def measure_latency(model: nn.Module, example_input: Any, *, runs: int = 15) -> float:
    """Median seconds of a forward pass on the example input, after a warm-up."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    args = example_input if isinstance(example_input, tuple) else (example_input,)
    args = tuple(value.to(device) if isinstance(value, torch.Tensor) else value for value in args)
    was_training = model.training
    model.eval()
    seconds = []
    with torch.inference_mode():
        for _ in range(runs + 3):
            start = time.perf_counter()
            model(*args)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
    model.train(was_training)
    return float(np.median(seconds[3:]))
