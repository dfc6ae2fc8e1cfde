"""From scores, or an order in which filters go, to a genome of the FLOPs asked for."""

from collections.abc import Sequence

import numpy as np

from deeppruning.errors import InputError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.searching.importance.criteria import CRITERIA, Criterion
from deeppruning.searching.importance.evidence import Evidence
from deeppruning.searching.importance.orders import global_order, uniform_order

TOLERANCE = 0.02  # of the FLOPs asked for


def genome_by(
    criterion: str | Criterion, evidence: Evidence, *, flops: float, everywhere: bool = False
) -> Genome:
    """The genome of about `flops` without the filters that matter least by a criterion, or one's name.

    The same share of every layer goes or, with `everywhere`, the lowest scores wherever they are, each
    over the mean of its layer. `evidence.graph.prune` makes the network of it.
    """
    graph = evidence.graph
    full = graph.flops(graph.full_genome())
    if not 0 < flops <= full:
        raise InputError(f"flops must lie above 0 and within the network's {full:,}, got {flops!r}")
    chosen = CRITERIA.find(criterion) if isinstance(criterion, str) else criterion
    order = order_by(chosen, evidence, everywhere=everywhere)
    return meet_flops(graph, graph.full_genome(), order, flops)


def order_by(criterion: Criterion, evidence: Evidence, *, everywhere: bool = False) -> list[int]:
    """All genes, those that matter least by the criterion first."""
    ordered = global_order if everywhere else uniform_order
    return ordered(evidence.graph, criterion.scores(evidence))


def meet_flops(graph: ChannelGraph, genome: Genome, order: Sequence[int], flops: float) -> Genome:
    """Remove filters in the given order until about `flops` are left, or restore them from its end.

    Filters that went too far are skipped for smaller ones further on, so that the result lies within
    TOLERANCE wherever the network's filters are fine enough; it is the nearest one found elsewhere.
    """
    start = np.asarray(graph.repair(genome))
    if _gap(graph, start, flops) <= TOLERANCE / 2:
        return start
    removing = bool(graph.flops(start) > flops)
    path = [gene for gene in (order if removing else reversed(order)) if start[gene] == removing]

    def flipped(count: int) -> Genome:
        changed = start.copy()
        changed[path[:count]] = not removing
        return changed

    def passed(candidate: Genome) -> bool:
        price = graph.flops(candidate)
        return bool(price < flops if removing else price > flops)

    low, high = 0, len(path)  # the longest way that does not pass the mark
    while low < high:
        middle = (low + high + 1) // 2
        if passed(flipped(middle)):
            high = middle - 1
        else:
            low = middle
    best = reached = flipped(low)
    for gene in path[low:]:
        if _gap(graph, best, flops) <= TOLERANCE / 2:
            break
        further = reached.copy()
        further[gene] = not removing
        if _gap(graph, further, flops) < _gap(graph, best, flops):
            best = further
        if not passed(further):
            reached = further
    return np.asarray(graph.repair(best))


def _gap(graph: ChannelGraph, genome: Genome, flops: float) -> float:
    return float(abs(graph.flops(genome) - flops) / flops)
