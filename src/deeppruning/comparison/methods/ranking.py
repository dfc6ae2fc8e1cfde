"""Methods without a search: criteria that rank filters, their refitted versions, and the uniform network."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.problem import METHODS, Method, Network, Problem, Target, register_method
from deeppruning.errors import Diverged
from deeppruning.genome import Genome, candidate_seed
from deeppruning.refitting.probing import FEWEST
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance.criteria import CRITERIA, Criterion, L1Norm
from deeppruning.searching.importance.orders import (
    meet_flops,
    order_by,
    prunable,
    rank_shares,
    uniform_order,
)
from deeppruning.searching.task import redraw_weights

ALL_WRONG = 1.0  # the share of wrong answers of a layer that is gone


class Ranking(Method):
    """Any method that is one order of removal for all filters."""

    refittable = True

    @abstractmethod
    def order(self, problem: Problem) -> list[int]:
        """All genes, the least important first."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The full network without the first filters of the order."""
        full, order = problem.graph.full_genome(), self.order(problem)
        return [Network(meet_flops(problem.graph, full, order, target.flops)) for target in targets]


class ByCriterion(Ranking):
    """The lowest scores are removed first, the same share of every layer.

    Layers with filters that are removed together count as one.
    """

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = criterion
        self.name = criterion.name
        self.kind = criterion.kind

    def order(self, problem: Problem) -> list[int]:
        """By rank within the layer."""
        return order_by(self.criterion, problem.evidence)


CRITERIA.follow(lambda criterion: METHODS.add(ByCriterion(criterion)))


@register_method
class L1Sensitivity(Ranking):
    """Li et al. 2017: layers that are less sensitive to pruning are cut more, by a scan of each layer.

    The source plots the error of the network against the share cut from one layer and picks the shares
    by hand. Here each filter gets the error of the network without it and all smaller filters of its layer,
    interpolated from the scan, and filters are removed in the order of these errors.
    """

    name = "l1-sensitivity"
    kind = "criteria"
    shares = (0.25, 0.5, 0.75)

    def order(self, problem: Problem) -> list[int]:
        """By the error without each filter."""
        graph, scores = problem.graph, L1Norm().scores(problem.evidence)
        layers = [np.array(genes)[np.argsort(scores[list(genes)])] for genes in prunable(graph)]
        steps = [[round(share * len(genes)) for share in self.shares] for genes in layers]
        cuts = [(place, count) for place, counts in enumerate(steps) for count in counts]
        full = graph.full_genome()
        errors = problem.map(
            plain_error, [full, *(_genome_without(full, layers[place][:n]) for place, n in cuts)]
        )
        base, scanned = errors[0], dict(zip(cuts, errors[1:], strict=True))
        turns = np.zeros(graph.num_genes)
        for place, genes in enumerate(layers):
            measured = [base, *(scanned[place, count] for count in steps[place]), ALL_WRONG]
            # A scan may dip by chance, but cutting more is never taken to be safer.
            rising = np.maximum.accumulate(measured)
            turns[genes] = np.interp(np.arange(1, len(genes) + 1), [0, *steps[place], len(genes)], rising)
        return [int(gene) for gene in np.lexsort((rank_shares(graph, scores), turns))]


def plain_error(context: Context, genome: Genome) -> float:
    """The error on the sample, cut and not trained; all wrong if an output is not finite."""
    try:
        error = context.task.untrained_error(context.graph.prune(genome))
    except Diverged:
        return ALL_WRONG
    assert error is not None
    return error


def _genome_without(genome: Genome, genes: NDArray[np.int64]) -> Genome:
    thinner = genome.copy()
    thinner[genes] = False
    return thinner


class WithRefit(Method):
    """The same genomes as another method, with weights from a refit on the whole sample.

    The difference from that method is what the refit is worth; the difference from a search that refits is
    what the search is worth.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.name = f"{method.name}+refit"
        self.kind = "criteria with refit" if method.kind == "criteria" else method.kind
        self.least_sample = max(FEWEST, method.least_sample)

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """Ask the method, then refit."""
        return problem.refitted(network.genome for network in self.method.propose(problem, targets))


def _register_refitted_twin(method: Method) -> None:
    """Add the method METHOD+refit beside one that can be refitted."""
    if method.refittable:
        twin = WithRefit(method)
        if isinstance(METHODS.get(twin.name), WithRefit):  # the method was redefined, as in a notebook
            METHODS.remove(twin.name)
        METHODS.add(twin)


METHODS.follow(_register_refitted_twin)


@register_method
class UniformWidth(Method):
    """A baseline: every layer is thinner by the same share, with random weights, trained like the others.

    Liu et al. 2019 ask whether pruning is worth more than that. Their networks are trained at full length;
    here, as everywhere in a comparison, the training is that of the fine-tuning.
    """

    name = "uniform-width"
    kind = "floors"

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The first filters of every layer, which are as good as any with random weights."""
        graph = problem.graph
        order = uniform_order(graph, -np.arange(graph.num_genes, dtype=np.float64))
        networks = []
        for target in targets:
            genome = meet_flops(graph, graph.full_genome(), order, target.flops)
            thin = graph.prune(genome)
            redraw_weights(thin, candidate_seed(problem.seed, genome))
            networks.append(Network(genome, dict(thin.state_dict())))
        return networks
