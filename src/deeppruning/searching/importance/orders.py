"""Orders in which filters are removed, and genomes with the FLOPs asked for."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.searching.importance.criteria import CRITERIA, Criterion
from deeppruning.searching.importance.evidence import Evidence, Scores

TOLERANCE = 0.02  # of the FLOPs asked for


def prunable(graph: ChannelGraph) -> list[tuple[int, ...]]:
    """The genes of every prunable group."""
    return [group.genes for group in graph.groups if group.prunable]


def rank_shares(graph: ChannelGraph, scores: Scores) -> NDArray[np.float64]:
    """For each gene the share of its group that is removed once the gene is."""
    shares = np.zeros(graph.num_genes)
    for genes in prunable(graph):
        ranked = np.array(genes)[np.argsort(scores[list(genes)], kind="stable")]
        shares[ranked] = (np.arange(len(ranked)) + 1) / len(ranked)
    return shares


def uniform_order(graph: ChannelGraph, scores: Scores) -> list[int]:
    """An order that, wherever it is stopped, has removed the same share of every group."""
    return [int(gene) for gene in np.argsort(rank_shares(graph, scores), kind="stable")]


def global_order(graph: ChannelGraph, scores: Scores) -> list[int]:
    """An order by score, relative to the mean of each group."""
    scaled = np.array(scores, dtype=np.float64)
    for genes in prunable(graph):
        mean = np.abs(scaled[list(genes)]).mean()
        scaled[list(genes)] /= mean if mean > 0 else 1.0
    return [int(gene) for gene in np.argsort(scaled, kind="stable")]


def genome_by(
    criterion: str | Criterion, evidence: Evidence, *, flops: float, everywhere: bool = False
) -> Genome:
    """The genome of about `flops` without the filters that matter least by a criterion, or its name.

    The same share of every layer is removed or, with `everywhere`, the lowest scores of all layers, each
    relative to the mean of its layer. `evidence.graph.prune` makes the network.
    """
    graph = evidence.graph
    full = graph.flops(graph.full_genome())
    if not 0 < flops <= full:
        raise InputError(f"flops must lie above 0 and within the network's {full:,}, got {flops!r}")
    chosen = CRITERIA.find(criterion) if isinstance(criterion, str) else criterion
    order = order_by(chosen, evidence, everywhere=everywhere)
    return meet_flops(graph, graph.full_genome(), order, flops)


def order_by(criterion: Criterion, evidence: Evidence, *, everywhere: bool = False) -> list[int]:
    """All genes, the least important by the criterion first."""
    ordered = global_order if everywhere else uniform_order
    return ordered(evidence.graph, criterion.scores(evidence))


def meet_flops(graph: ChannelGraph, genome: Genome, order: Sequence[int], flops: float) -> Genome:
    """Remove filters in the given order until about `flops` are left, or restore them from its end.

    Filters that overshoot are skipped for smaller ones further on, so that the result is within TOLERANCE if
    the network's filters are small enough; otherwise it is the nearest one found.
    """
    start = np.asarray(graph.repair(genome))
    if _gap_in_flops(graph, start, flops) <= TOLERANCE / 2:
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

    low, high = 0, len(path)  # the longest part of the path that does not pass the FLOPs
    while low < high:
        middle = (low + high + 1) // 2
        if passed(flipped(middle)):
            high = middle - 1
        else:
            low = middle
    best = reached = flipped(low)
    for gene in path[low:]:
        if _gap_in_flops(graph, best, flops) <= TOLERANCE / 2:
            break
        further = reached.copy()
        further[gene] = not removing
        if _gap_in_flops(graph, further, flops) < _gap_in_flops(graph, best, flops):
            best = further
        if not passed(further):
            reached = further
    return np.asarray(graph.repair(best))


def _gap_in_flops(graph: ChannelGraph, genome: Genome, flops: float) -> float:
    return float(abs(graph.flops(genome) - flops) / flops)
