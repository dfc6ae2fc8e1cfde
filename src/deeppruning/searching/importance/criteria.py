"""Filter-selection criteria: each scores every gene, and the lowest score is removed first.

Random, l1-norm, mean activation, APoZ and entropy are those that the paper lists; span is ours.
"""

from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.registry import Registry
from deeppruning.searching.importance.evidence import Evidence, Scores


class Criterion(ABC):
    """How much a filter matters. A gene that stands for several filters gets their joint score."""

    name: str
    kind = "criteria"  # where a comparison shows it

    @abstractmethod
    def scores(self, evidence: Evidence) -> Scores:
        """A score per gene; only the order within a layer matters, and the ratios between layers."""


CRITERIA: Registry[Criterion] = Registry("criterion", "deeppruning.searching.importance")
Class = TypeVar("Class", bound=type[Criterion])


def register_criterion(criterion: Class) -> Class:
    """Register a criterion under its name, for `genome_by`, and for `compare` with and without a refit."""
    CRITERIA.add(criterion())
    return criterion


@register_criterion
class Random(Criterion):
    """Random scores, which look at nothing: the baseline that all other criteria have to beat."""

    name = "random"
    kind = "floors"

    def scores(self, evidence: Evidence) -> Scores:
        """Uniform in [0, 1)."""
        return evidence.generator().random(evidence.graph.num_genes)


@register_criterion
class L1Norm(Criterion):
    """Li et al. 2017: the sum of the absolute weights of a filter.

    The source prunes the first layers of residual blocks freely and the second layers by the order of their
    shortcut; here filters that are removed together are scored by the sum of their norms.
    """

    name = "l1"

    def scores(self, evidence: Evidence) -> Scores:
        """Sum of |w| over the filters of each gene."""
        scores = np.zeros(evidence.graph.num_genes)
        layers = evidence.graph.layer_genes()
        for layer, filters in evidence.graph.filters(evidence.model).items():
            genes, norms = np.array(layers[layer]), filter_norms(filters)
            np.add.at(scores, genes[genes >= 0], norms[genes >= 0])
        return scores


@register_criterion
class MeanActivation(Criterion):
    """Molchanov et al. 2017: the mean rectified activation of a filter over images and positions."""

    name = "activation"

    def scores(self, evidence: Evidence) -> Scores:
        """Mean rectified activation on the sample."""
        return evidence.activations.mean


@register_criterion
class APoZ(Criterion):
    """Hu et al. 2016: the average percentage of zeros among a filter's rectified activations.

    The source prunes filters one standard deviation above the mean and repeats; here only the order is used.
    """

    name = "apoz"

    def scores(self, evidence: Evidence) -> Scores:
        """One minus the share of zeros on the sample."""
        return 1.0 - evidence.activations.zeros


@register_criterion
class Entropy(Criterion):
    """Luo and Wu 2017: the entropy of a filter's pooled activations over the images, in `bins` equal steps.

    A filter with the same activation for every image carries little information and is removed first.
    """

    name = "entropy"
    bins = 100

    def scores(self, evidence: Evidence) -> Scores:
        """Entropy in nats on the sample."""
        return np.array([histogram_entropy(column, self.bins) for column in evidence.activations.pooled.T])


@register_criterion
class Span(Criterion):
    """Ours: greedy pivoted Cholesky on the covariance of the channels that the next layers read.

    Each channel is weighted by the norm of the weights that read it. The score of a filter is its variance
    that the filters chosen before it do not explain, so that a copy of another filter scores nothing. Filters
    that no layer reads with weights of its own are scored by their l1-norm, scaled below all others.
    """

    name = "span"

    def scores(self, evidence: Evidence) -> Scores:
        """The variance that each gene adds, in the order of choice within its group."""
        graph = evidence.graph
        scores, read = np.zeros(graph.num_genes), np.zeros(graph.num_genes, dtype=np.bool_)
        for genes in (list(group.genes) for group in graph.groups if group.prunable):
            pairs = [pair for reader in evidence.readers.values() for pair in reader.matrices(genes)]
            if pairs:
                weighted = sum(covariance * _norms_of_readers(product) for covariance, product in pairs)
                scores[genes], read[genes] = unexplained_variance(np.asarray(weighted)), True
        if not read.all():
            norms = L1Norm().scores(evidence)
            least = scores[scores > 0].min(initial=1.0)
            scores[~read] = norms[~read] / max(float(norms.max()), 1e-12) * least / 2
        return scores


def filter_norms(filters: Tensor) -> Scores:
    """The l1-norm of each row.

    >>> import torch
    >>> filter_norms(torch.tensor([[-3.0, 1.0], [2.0, 0.0]])).tolist()
    [4.0, 2.0]
    """
    return np.asarray(filters.detach().double().abs().cpu().sum(1).numpy())


def histogram_entropy(values: Scores, bins: int) -> float:
    """
    >>> round(histogram_entropy(np.array([0.0, 0.0, 1.0, 1.0]), 10), 4)  # two equal halves: ln 2
    0.6931
    >>> histogram_entropy(np.array([2.0, 2.0]), 10)
    0.0
    """
    counts, _ = np.histogram(values, bins=bins)
    shares = counts[counts > 0] / len(values)
    return float(abs(-(shares * np.log(shares)).sum()))


def unexplained_variance(covariance: NDArray[np.float64]) -> Scores:
    """For each variable, its variance given those chosen before it; the largest is always chosen next.

    >>> unexplained_variance(np.array([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [4.0, 0.0, 1.0]
    """
    count = len(covariance)
    left = covariance.diagonal().astype(np.float64).copy()
    factors = np.zeros((count, count))
    scores = np.zeros(count)
    waiting = np.ones(count, dtype=np.bool_)
    for step in range(count):
        pivot = int(np.argmax(np.where(waiting, left, -np.inf)))
        scores[pivot], waiting[pivot] = max(left[pivot], 0.0), False
        if left[pivot] <= 1e-12:
            continue
        column = (covariance[:, pivot] - factors[:, :step] @ factors[pivot, :step]) / np.sqrt(left[pivot])
        factors[:, step] = column
        left = left - column**2
    return scores


def _norms_of_readers(product: Tensor) -> Tensor:
    """For each pair of channels, the product of the norms of the weights that read them."""
    norms = product.diagonal().clamp_min(0.0).sqrt()
    return torch.outer(norms, norms)
