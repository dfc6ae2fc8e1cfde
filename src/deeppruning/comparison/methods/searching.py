"""Methods that search: they evaluate as many candidates as the evolution strategy does, in the same way."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.methods.registry import METHODS, register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.errors import RunError
from deeppruning.genome import Genome
from deeppruning.searching.importance.budget import TOLERANCE, meet_flops
from deeppruning.searching.strategies import paper_strategy


class Searching(Method):
    """A search over both objectives, from which a network is taken for every target.

    It is the candidate with the smallest error among those at most 2 % above the FLOPs asked for; what it
    then has left to spend is filled up with filters drawn at random, which the search has not tried.
    """

    kind = "searches"

    @abstractmethod
    def search(self, problem: Problem) -> list[tuple[Genome, NDArray[np.float64]]]:
        """Batches of genomes (k, genes) with their errors and FLOPs (k, 2)."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The best candidate for each target, brought to its FLOPs."""
        batches = self.search(problem)
        genomes = np.concatenate([genomes for genomes, _ in batches])
        objectives = np.concatenate([values for _, values in batches])
        generator = problem.generator()
        networks = []
        for target in targets:
            chosen = genomes[best_within(objectives, target.flops)]
            order = generator.permutation(problem.graph.num_genes).tolist()
            networks.append(Network(meet_flops(problem.graph, chosen, order, target.flops)))
        return networks


def best_within(objectives: NDArray[np.float64], flops: float) -> int:
    """The smallest error among those within the FLOPs, or else the fewest FLOPs; never one without an error.

    >>> best_within(np.array([[0.1, 90.0], [0.3, 50.0], [0.2, 51.0], [np.nan, np.nan]]), 50.0)
    2
    """
    errors, costs = np.where(np.isnan(objectives), np.inf, objectives).T
    if np.isinf(errors).all():
        raise RunError("every candidate of a method's search diverged or failed: it has none to propose")
    affordable = costs <= flops * (1 + TOLERANCE)
    if not affordable.any():
        return int(np.argmin(costs))
    return int(np.lexsort((-costs, np.where(affordable, errors, np.inf)))[0])


class Strategy(Searching):
    """The evolution strategy of this package, with plus or comma selection, run with this seed."""

    def __init__(self, selection: str) -> None:
        self.selection = selection
        self.name = f"es-{selection}"

    def search(self, problem: Problem) -> list[tuple[Genome, NDArray[np.float64]]]:
        """Ask and tell to the end."""
        config = replace(problem.search, selection=self.selection, seed=problem.seed)
        strategy = paper_strategy(problem.context, config)
        batches = []
        while not strategy.done:
            genomes = strategy.ask()
            objectives = problem.evaluate(genomes)
            strategy.tell(objectives)
            batches.append((genomes, objectives))
        return batches


METHODS.add(Strategy("plus"))
METHODS.add(Strategy("comma"))


@register_method
class RandomSearch(Searching):
    """The floor of all searches: each candidate draws a share to keep, then each filter whether it is kept.

    The share is uniform over 0.1 to 1, so that the candidates cover the whole range of FLOPs.
    """

    name = "random-search"
    kind = "floors"

    def search(self, problem: Problem) -> list[tuple[Genome, NDArray[np.float64]]]:
        """All candidates at once: none learns from another."""
        generator = problem.generator()
        shares = generator.uniform(0.1, 1.0, size=(problem.search.evaluations, 1))
        drawn = generator.random((len(shares), problem.graph.num_genes)) < shares
        genomes = problem.graph.repair(drawn)
        return [(genomes, problem.evaluate(genomes))]
