"""From an order in which filters go to a network of the FLOPs asked for."""

from collections.abc import Sequence

import numpy as np

from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph

TOLERANCE = 0.02  # of the FLOPs asked for


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
