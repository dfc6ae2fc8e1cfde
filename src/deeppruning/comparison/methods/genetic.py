"""A single-objective genetic algorithm, run once for each target."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.errors import RunError
from deeppruning.genome import Genome, Population
from deeppruning.searching.importance.budget import meet_flops


@register_method
class Genetic(Method):
    """Wang et al. 2018: binary genomes, roulette-wheel selection, crossover, mutation, the best is kept.

    The source adds the share of weights removed to the accuracy by a factor set by hand. Here the FLOPs
    are given, so every individual is brought to them by filters drawn at random and accuracy alone
    decides. The evaluations of one search of ours are divided among the targets. Crossover is uniform:
    filters that lie side by side in a genome have nothing to do with each other.
    """

    name = "ga"
    kind = "searches"
    population = 16

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The best individual of each target."""
        budget = problem.search.evaluations // len(targets)
        generator = problem.generator()
        return [Network(self._evolve(problem, target, budget, generator)) for target in targets]

    def _evolve(
        self, problem: Problem, target: Target, budget: int, generator: np.random.Generator
    ) -> Genome:
        genes, size = problem.graph.num_genes, min(self.population, budget)

        def fit_in(genomes: Population) -> Population:
            orders = [generator.permutation(genes).tolist() for _ in genomes]
            pairs = zip(genomes, orders, strict=True)
            return np.array([meet_flops(problem.graph, one, order, target.flops) for one, order in pairs])

        people = fit_in(np.ones((size, genes), dtype=np.bool_))
        errors = problem.evaluate(people)[:, 0]
        spent = size
        while spent < budget:
            count = min(size - 1, budget - spent) or 1
            mothers, fathers = (people[roulette(errors, count, generator)] for _ in range(2))
            children = np.where(generator.random(mothers.shape) < 0.5, mothers, fathers)
            children = fit_in(children ^ (generator.random(children.shape) < problem.search.mutation))
            best = int(np.argmin(_worst_if_unknown(errors)))
            people = np.concatenate([people[best : best + 1], children])
            errors = np.append(errors[best], problem.evaluate(children)[:, 0])
            spent += count
        if np.isnan(errors).all():
            raise RunError("every candidate of the genetic algorithm diverged: it has none to propose")
        return np.asarray(people[int(np.argmin(_worst_if_unknown(errors)))])


def _worst_if_unknown(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isnan(errors), np.inf, errors)


def roulette(errors: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw individuals with a chance in proportion to their accuracy above the worst one's.

    One without an error (nan) has no chance, unless all are without.

    >>> roulette(np.array([0.5, 0.1, 0.5]), 3, np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """
    known = ~np.isnan(errors)
    fitness = np.zeros_like(errors)
    if known.any():
        fitness[known] = errors[known].max() - errors[known]
    if not fitness.any():
        fitness = known.astype(np.float64) if known.any() else np.ones_like(errors)
    return generator.choice(len(errors), size=count, p=fitness / fitness.sum())
