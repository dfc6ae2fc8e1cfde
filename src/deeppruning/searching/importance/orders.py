"""Orders in which filters go, made of scores: within a layer, the same share of every layer, or anywhere."""

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph import ChannelGraph

Scores = NDArray[np.float64]  # one a gene; the lowest goes first


def prunable(graph: ChannelGraph) -> list[tuple[int, ...]]:
    """The genes of every set of layers whose filters go together."""
    return [group.genes for group in graph.groups if group.prunable]


def rank_shares(graph: ChannelGraph, scores: Scores) -> NDArray[np.float64]:
    """For each gene the share of its layer's filters that are gone when its turn comes."""
    shares = np.zeros(graph.num_genes)
    for genes in prunable(graph):
        ranked = np.array(genes)[np.argsort(scores[list(genes)], kind="stable")]
        shares[ranked] = (np.arange(len(ranked)) + 1) / len(ranked)
    return shares


def uniform_order(graph: ChannelGraph, scores: Scores) -> list[int]:
    """An order that, wherever it is broken off, has taken the same share of every layer."""
    return [int(gene) for gene in np.argsort(rank_shares(graph, scores), kind="stable")]


def global_order(graph: ChannelGraph, scores: Scores) -> list[int]:
    """An order by score, each over the mean of its layer."""
    scaled = np.array(scores, dtype=np.float64)
    for genes in prunable(graph):
        mean = np.abs(scaled[list(genes)]).mean()
        scaled[list(genes)] /= mean if mean > 0 else 1.0
    return [int(gene) for gene in np.argsort(scaled, kind="stable")]
