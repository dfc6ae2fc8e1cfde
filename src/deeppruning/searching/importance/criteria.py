"""The filter-selection criteria that the paper lists: each scores every gene, the lowest goes first."""

from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from torch import Tensor

from deeppruning.registry import Registry
from deeppruning.searching.importance.evidence import Evidence
from deeppruning.searching.importance.orders import Scores


class Criterion(ABC):
    """How much a filter matters. A gene that stands for several filters gets what they come to together."""

    name: str
    kind = "criteria"  # where a comparison shows it

    @abstractmethod
    def scores(self, evidence: Evidence) -> Scores:
        """A score for each gene; only the order within a layer matters, and the ratios between layers."""


CRITERIA: Registry[Criterion] = Registry("criterion", "deeppruning.searching.importance")
Class = TypeVar("Class", bound=type[Criterion])


def register_criterion(criterion: Class) -> Class:
    """Enter a criterion under its name: `genome_by` finds it, and `compare` has four methods of it."""
    CRITERIA.add(criterion())
    return criterion


@register_criterion
class Random(Criterion):
    """No criterion at all: every filter draws a number. The floor that each other has to beat."""

    name = "random"
    kind = "floors"

    def scores(self, evidence: Evidence) -> Scores:
        """Uniform in [0, 1)."""
        return evidence.generator().random(evidence.graph.num_genes)


@register_criterion
class L1Norm(Criterion):
    """Li et al. 2017: the sum of the absolute weights of a filter.

    The source prunes first layers of residual blocks freely and second layers by the order of their
    shortcut; here filters that go together are scored by the sum of their norms.
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
    """Molchanov et al. 2017: the mean answer of a filter, after rectification, over images and places."""

    name = "activation"

    def scores(self, evidence: Evidence) -> Scores:
        """Mean rectified activation on the sample."""
        return evidence.activations.mean


@register_criterion
class APoZ(Criterion):
    """Hu et al. 2016: the average percentage of zeros among a filter's rectified answers, most go first.

    The source prunes what lies one deviation above the mean and repeats; here the order alone is used.
    """

    name = "apoz"

    def scores(self, evidence: Evidence) -> Scores:
        """One minus the share of zeros on the sample."""
        return 1.0 - evidence.activations.zeros


@register_criterion
class Entropy(Criterion):
    """Luo and Wu 2017: the entropy of a filter's pooled answers over the images, in `bins` equal steps.

    A filter that answers every image alike tells little and goes first.
    """

    name = "entropy"
    bins = 100

    def scores(self, evidence: Evidence) -> Scores:
        """Entropy in nats on the sample."""
        return np.array([histogram_entropy(column, self.bins) for column in evidence.activations.pooled.T])


def filter_norms(filters: Tensor) -> Scores:
    """The l1-norm of each filter, given as rows.

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
