"""A scan of each group of filters by itself: what is lost at some of its widths, and without it.

The cuts of a scan do not depend on each other, so they are looked at wherever there are workers; whoever
asks for a scan hands in the way to do that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeppruning.errors import Diverged
from deeppruning.evolution.balance import LEVELS
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.pruning.candidate import Context
from deeppruning.pruning.drift import drift
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.refitting.reference import FEWEST as NEEDED
from deeppruning.system.device import this_or_processor

SCANNED = 3000  # inputs that the scans of all groups share
FEWEST, MOST = 48, 256  # inputs of one scan; every second to refit on, the others to judge by

Look = Callable[[Sequence[Genome]], Sequence[float]]  # what is lost by each of some cuts


def scan(graph: ChannelGraph, scores: NDArray[np.float64], look: Look) -> list[list[float]]:
    """For each prunable group by itself, what is lost at `LEVELS` of its filters, and at last without it.

    The rest of the network is whole. A group that cannot go is lost without measure.
    """
    cuts = [list(_cuts(graph, group.genes, scores)) for group in graph.groups if group.prunable]
    removable = [group.removable for group in graph.groups if group.prunable]
    asked = [row if may_go else row[:-1] for row, may_go in zip(cuts, removable, strict=True)]
    found = iter(look([genome for row in asked for genome in row]))
    rows = [[next(found) for _ in row] for row in asked]
    return [row if may_go else [*row, math.inf] for row, may_go in zip(rows, removable, strict=True)]


def _cuts(graph: ChannelGraph, genes: Sequence[int], scores: NDArray[np.float64]) -> Iterator[Genome]:
    """One group at each level, the filters of low score gone, and at last without it."""
    ranked = np.array(genes)[np.argsort(-scores[list(genes)], kind="stable")]
    for count in (*(max(1, round(level * len(ranked))) for level in LEVELS), 0):
        genome = graph.full_genome()
        genome[ranked[count:]] = False
        yield graph.repair(genome)


@dataclass(frozen=True, eq=False)
class Scanner:
    """What it takes to look at cuts: all is refitted on a few inputs, and judged by others.

    The outputs for these are held against the original's.
    """

    graph: ChannelGraph
    reference: Reference
    judged: Call
    wanted: Any  # what the original answers to them

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, device: str | None = None) -> Scanner:
        """The more groups there are to look at, the fewer of the inputs are used for each."""
        call = as_call(inputs)
        groups = sum(group.prunable for group in graph.groups)
        wanted = min(max(SCANNED // groups, FEWEST), MOST)
        few = part_of(call, slice(None, None, max(1, batch_size(call) // wanted)))
        refitted = judged = few
        if batch_size(few) >= 2 * NEEDED:  # else there are too few to keep some aside
            refitted, judged = part_of(few, slice(0, None, 2)), part_of(few, slice(1, None, 2))
        reference = Reference.of(graph, refitted[0] or refitted[1], device=device)
        judged = onto(judged, reference.device)
        return cls(graph, reference, judged, _answer(reference.model, judged))

    @classmethod
    def in_(cls, context: Context) -> Scanner:
        """That of a search, made once in each process."""
        device = str(this_or_processor(context.device))
        return context.once("scanner", lambda: cls.of(context.graph, context.task.refit_inputs(), device))

    def loss(self, genome: Genome) -> float:
        """How far the outputs of a cut, refitted, are from the original's; infinite where nothing works."""
        thin = self.graph.prune(genome).eval()
        refit_in_place(self.reference, self.graph, genome, thin)
        try:
            return drift(self.wanted, _answer(thin, self.judged)).score
        except Diverged:
            return math.inf


def loss_of(context: Context, genome: Genome) -> float:
    """What is lost by one cut, for a worker to find."""
    return Scanner.in_(context).loss(genome)


def look_here(context: Context) -> Look:
    """The way to look at cuts one by one, in this process."""
    return lambda genomes: [loss_of(context, genome) for genome in genomes]


def _answer(network: nn.Module, call: Call) -> Any:
    args, kwargs = call
    with torch.no_grad():
        return network(*args, **kwargs)
