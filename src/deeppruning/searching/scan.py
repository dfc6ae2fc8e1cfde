"""A scan of each group of filters by itself: what is lost at some of its widths, and without it.

The cuts of a scan do not depend on each other, so they are looked at wherever there are workers; whoever
asks for a scan hands in the way to do that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeppruning.errors import Diverged
from deeppruning.evolution.seeds import LEVELS
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.graph.groups import Group
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.reference import FEWEST as NEEDED
from deeppruning.searching.candidate import Context
from deeppruning.searching.drift import drift
from deeppruning.system.device import device_or_cpu

SCANNED = 3000  # inputs that the scans of all groups share
FEWEST, MOST = 48, 256  # inputs of one scan; every second to refit on, the others to judge by

Look = Callable[[Sequence[Genome]], Sequence[float]]  # what is lost by each of some cuts


def scan(graph: ChannelGraph, scores: NDArray[np.float64], look: Look) -> list[list[float]]:
    """For each prunable group by itself, what is lost at `LEVELS` of its filters, and at last without it.

    The rest of the network is whole. What is looked at are widths that the group may have; in between, the
    loss is taken to grow evenly. A group that cannot go is lost without measure.
    """
    groups = [group for group in graph.groups if group.prunable]
    counts = [list(_counts(group)) for group in groups]
    cuts = [
        _cut(graph, group, count, scores) for group, row in zip(groups, counts, strict=True) for count in row
    ]
    found = iter(look(cuts))
    rows = []
    for group, row in zip(groups, counts, strict=True):
        losses = {count: next(found) for count in row}
        rows.append([*_at_levels(losses, len(group.genes)), losses.get(0, math.inf)])
    return rows


def _counts(group: Group) -> list[int]:
    """The widths of a group to look at: those next to `LEVELS` that it may have, and none where it may go."""
    whole, step = len(group.genes), group.multiple
    near = (min(max(round(level * whole / step), 1) * step, whole - step) for level in LEVELS)
    thinner = sorted({count for count in near if count > 0}, reverse=True)
    return [*thinner, 0] if group.removable else thinner


def _cut(graph: ChannelGraph, group: Group, count: int, scores: NDArray[np.float64]) -> Genome:
    """One group at some width, the filters of low score gone."""
    genes = list(group.genes)
    ranked = np.array(genes)[np.argsort(-scores[genes], kind="stable")]
    genome = graph.full_genome()
    genome[ranked[count:]] = False
    return graph.repair(genome)


def _at_levels(losses: Mapping[int, float], whole: int) -> list[float]:
    """What is lost at `LEVELS`, drawn between the widths that were looked at; all filters lose nothing.

    >>> _at_levels({8: 0.5, 0: 1.5}, 16)
    [0.25, 0.5, 1.0]
    """
    known = {**losses, whole: 0.0}
    widths = sorted(known)
    found = np.interp([level * whole for level in LEVELS], widths, [known[width] for width in widths])
    # Next to a loss without measure, what is drawn is none either.
    return [math.inf if math.isnan(loss) else float(loss) for loss in found]


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
        device = str(device_or_cpu(context.device))
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
