"""Methods that rank filters: a criterion, and a way to share the cut among the layers."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.methods.registry import METHODS, register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.errors import Diverged
from deeppruning.genome import Genome
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance.budget import meet_flops, order_by
from deeppruning.searching.importance.criteria import CRITERIA, Criterion, L1Norm
from deeppruning.searching.importance.orders import prunable, rank_shares

ALL_WRONG = 1.0  # the share of wrong answers of a layer that is gone


class Ranking(Method):
    """Anything that comes down to one order in which filters go, from the first to the last."""

    refittable = True

    @abstractmethod
    def order(self, problem: Problem) -> list[int]:
        """All genes, those that matter least first."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The full network without the first filters of the order."""
        full, order = problem.graph.full_genome(), self.order(problem)
        return [Network(meet_flops(problem.graph, full, order, target.flops)) for target in targets]


class ByCriterion(Ranking):
    """The lowest scores go first: the same share of every layer, or, with `everywhere`, wherever they are.

    Scores of different layers are made comparable, where they have to be, by dividing them by their
    layer's mean. Layers whose filters go together count as one.
    """

    def __init__(self, criterion: Criterion, *, everywhere: bool = False) -> None:
        self.criterion = criterion
        self.everywhere = everywhere
        self.name = criterion.name + ("-global" if everywhere else "")
        self.kind = criterion.kind

    def order(self, problem: Problem) -> list[int]:
        """By score over the layer's mean, or by rank within the layer."""
        return order_by(self.criterion, problem.evidence, everywhere=self.everywhere)


CRITERIA.follow(lambda criterion: METHODS.add(ByCriterion(criterion)))
CRITERIA.follow(lambda criterion: METHODS.add(ByCriterion(criterion, everywhere=True)))


@register_method
class L1Sensitivity(Ranking):
    """Li et al. 2017: layers that bear pruning well are cut more, as a scan of each layer shows.

    The source plots the error of the network against the share cut from one layer and picks the shares
    by hand. Here each filter is given the error of the network without it and all smaller ones of its
    layer, read off the scan, and goes in the order of these errors.
    """

    name = "l1-sensitivity"
    kind = "criteria"
    shares = (0.25, 0.5, 0.75)

    def order(self, problem: Problem) -> list[int]:
        """By the error at which each filter's turn comes."""
        graph, scores = problem.graph, L1Norm().scores(problem.evidence)
        layers = [np.array(genes)[np.argsort(scores[list(genes)])] for genes in prunable(graph)]
        steps = [[round(share * len(genes)) for share in self.shares] for genes in layers]
        cuts = [(place, count) for place, counts in enumerate(steps) for count in counts]
        full = graph.full_genome()
        errors = problem.map(plain_error, [full, *(_without(full, layers[place][:n]) for place, n in cuts)])
        base, scanned = errors[0], dict(zip(cuts, errors[1:], strict=True))
        turns = np.zeros(graph.num_genes)
        for place, genes in enumerate(layers):
            measured = [base, *(scanned[place, count] for count in steps[place]), ALL_WRONG]
            # A scan may dip by luck, but to cut more is never taken to be safer.
            rising = np.maximum.accumulate(measured)
            turns[genes] = np.interp(np.arange(1, len(genes) + 1), [0, *steps[place], len(genes)], rising)
        return [int(gene) for gene in np.lexsort((rank_shares(graph, scores), turns))]


def plain_error(context: Context, genome: Genome) -> float:
    """The error on the sample, cut and not trained; a cut that leaves no finite output gets all wrong."""
    try:
        error = context.task.untrained_error(context.graph.prune(genome))
    except Diverged:
        return ALL_WRONG
    assert error is not None
    return error


def _without(genome: Genome, genes: NDArray[np.int64]) -> Genome:
    thinner = genome.copy()
    thinner[genes] = False
    return thinner
