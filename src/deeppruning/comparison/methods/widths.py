"""Searches over widths: how many filters each group keeps, which by an order; all are judged by refit."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.methods.nsga import ask_and_tell
from deeppruning.comparison.methods.registry import register_method
from deeppruning.comparison.methods.searching import best_within
from deeppruning.comparison.problem import Method, Network, Problem, Target
from deeppruning.config import SearchConfig
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome, Population
from deeppruning.objectives import as_objective
from deeppruning.refitting.reference import FEWEST
from deeppruning.searching.guide import Guide
from deeppruning.searching.importance.budget import TOLERANCE, meet_flops
from deeppruning.searching.importance.orders import uniform_order
from deeppruning.searching.scan import loss_of
from deeppruning.searching.strategies import guided_strategy, known_guide

NARROWEST = 0.1  # share of a group that a random width keeps at least
MOST_GONE = 0.6  # the largest chance of a unit to be gone in a random candidate
GONE = 0.05  # share of a unit's filters below which it is taken to be gone


@dataclass(frozen=True, eq=False)
class Judged:
    """Candidates with what they are selected on, and their FLOPs; nan for those that came to nothing."""

    genomes: Population
    values: NDArray[np.float64]  # (candidates, 2)


@dataclass(frozen=True, eq=False)
class Field:
    """What a search over widths is given."""

    problem: Problem  # by refit
    config: SearchConfig  # with the seed of this repetition
    guide: Guide
    space: Space

    @classmethod
    def of(cls, problem: Problem) -> "Field":
        """The orders of the filters are found anew for each method, unless its history has them."""
        judged = problem.by_refit()
        config = replace(problem.search, seed=problem.seed)
        guide = known_guide(judged.context, config, judged.history, partial(judged.map, loss_of))
        space = guide.space(
            problem.graph,
            objective=as_objective("flops"),
            least=config.min_channels,
        )
        return cls(judged, config, guide, space)

    @property
    def whole(self) -> float:
        """The FLOPs of the original."""
        return float(self.space.price(self.space.full()[None])[0])

    def judge(self, genomes: Population) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Error and FLOPs (k, 2), and the score (k,) that is selected on."""
        found = self.problem.judge(genomes)
        objectives = np.array([one.objectives for one in found])
        return objectives, np.array([one.judged for one in found])

    def judged(self, genomes: Population) -> Judged:
        """Score and FLOPs, side by side."""
        objectives, scores = self.judge(genomes)
        return Judged(genomes, np.stack([scores, objectives[:, 1]], axis=1))

    def drawn(self, generator: np.random.Generator) -> tuple[Genome, str]:
        """A candidate at random: a cost within the range, then widths, units that are gone, and an order."""
        space, config = self.space, self.config
        cost = generator.uniform(config.low, config.high) * self.whole
        order = space.orders[int(generator.integers(len(space.orders)))]
        genome = space.full()
        for group, share in enumerate(generator.uniform(NARROWEST, 1.0, size=len(space.groups))):
            count = int(space.rounded(space.sizes * share)[group])
            genome = space.resize(genome, group, count, order)
        for unit in self._dispensed_with(cost, generator):
            genome = space.drop(genome, unit)
        return space.fit(genome, cost, order), order

    def brought_to(self, genome: Genome, flops: int) -> Genome:
        """The genome with its widths scaled to the FLOPs, unless it has them.

        Units that are gone come back only where all the others together do not have so many.
        """
        graph, order = self.problem.graph, self.space.orders[0]
        if abs(graph.flops(genome) / flops - 1) <= TOLERANCE:
            return genome
        scaled = self.space.fit(genome, float(flops), order)
        # Widths that all step at once may leave a gap; single filters, the best first, close it.
        ranked = uniform_order(graph, self.space.scores[order])
        rest = self.space.full()
        for unit in self.space.gone(scaled):
            rest = self.space.drop(rest, unit)
        if graph.flops(rest) >= flops * (1 - TOLERANCE):
            ranked = [gene for gene in ranked if rest[gene]]
        return meet_flops(graph, scaled, ranked, flops)

    def _dispensed_with(self, cost: float, generator: np.random.Generator) -> list[int]:
        """Units that are gone at random, as long as the rest can still have the cost."""
        gone, rest, chance = [], self.space.full(), generator.uniform(0.0, MOST_GONE)
        for unit in generator.permutation(self.space.units).tolist():
            without = self.space.drop(rest, int(unit))
            if generator.random() < chance and float(self.space.price(without[None])[0]) >= cost:
                gone.append(int(unit))
                rest = without
        return gone


class WidthSearch(Method):
    """A search over widths, from which a network is taken for every target.

    It is the candidate with the best score among those at most 2 % above the FLOPs asked for. Where it has
    more than 2 % left to spend, all its widths are scaled up. Then it is refitted on the whole sample.
    """

    kind = "searches"
    least_sample = 2 * FEWEST
    judges_by_refit = True

    @abstractmethod
    def search(self, field: Field) -> list[Judged]:
        """Candidates, as many as the options say."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The best candidate for each target, brought to its FLOPs and refitted."""
        field = Field.of(problem)
        found = self.search(field)
        genomes = np.concatenate([batch.genomes for batch in found])
        values = np.concatenate([batch.values for batch in found])
        chosen = [genomes[best_within(values, target.flops)] for target in targets]
        pairs = zip(chosen, targets, strict=True)
        return problem.refitted([field.brought_to(genome, target.flops) for genome, target in pairs])


@register_method
class Guided(WidthSearch):
    """The guided search of this package, run with this seed.

    It starts from every order at several costs and from mixtures of depth and width, keeps the best
    candidate at each cost, and varies widths, orders and units.
    """

    name = "guided"

    def search(self, field: Field) -> list[Judged]:
        """Ask and tell to the end."""
        strategy = guided_strategy(field.problem.context, field.config, field.guide)
        batches = []
        while not strategy.done:
            genomes = strategy.ask()
            objectives, scores = field.judge(genomes)
            strategy.tell(objectives, scores)
            batches.append(Judged(genomes, np.stack([scores, objectives[:, 1]], axis=1)))
        return batches


@register_method
class RandomWidths(WidthSearch):
    """The floor of searches over widths: every candidate draws a cost, widths, an order and what is gone.

    Costs are uniform over the range of the options, so that candidates cover all of it. It has all that
    guides our search, its orders and its refit, but learns nothing from what it has seen.
    """

    name = "random-widths"
    kind = "floors"

    def search(self, field: Field) -> list[Judged]:
        """All candidates at once: none learns from another."""
        generator = field.problem.generator()
        drawn = [field.drawn(generator)[0] for _ in range(field.config.evaluations)]
        return [field.judged(np.array(drawn))]


@register_method
class NSGA2Widths(WidthSearch):
    """Deb et al. 2002 on widths: a real number a group, the share of its filters kept, and one for the order.

    A unit whose share is below 0.05 is gone. It starts from candidates drawn as in `random-widths` and makes
    as many offspring a generation as our search, by the crossover and mutation that pymoo has for real
    numbers: equal in the number of evaluations. It selects on score and FLOPs; a candidate without them is
    infeasible.
    """

    name = "nsga2-widths"
    needs = "pymoo"

    def search(self, field: Field) -> list[Judged]:
        """Ask and tell to the end."""
        from pymoo.algorithms.moo.nsga2 import NSGA2 as Algorithm
        from pymoo.core.duplicate import DefaultDuplicateElimination
        from pymoo.core.problem import Problem as Variables

        config, generator = field.config, field.problem.generator()
        drawn = [field.drawn(generator) for _ in range(3 + config.offspring)]
        first = np.array([encoded(field.space, genome, order) for genome, order in drawn])
        algorithm = Algorithm(
            pop_size=len(first),
            n_offsprings=config.offspring,
            sampling=first,
            # Other numbers may come to the same genome, which would be an evaluation less.
            eliminate_duplicates=DefaultDuplicateElimination(
                func=lambda people: np.array([decoded(field.space, x) for x in people.get("X")], dtype=float)
            ),
        )
        variables = Variables(n_var=first.shape[1], n_obj=2, n_ieq_constr=1, xl=0.0, xu=1.0)
        algorithm.setup(
            variables, termination=("n_gen", config.generations), seed=field.problem.seed, verbose=False
        )
        batches = []

        def judge(people: NDArray[Any]) -> NDArray[np.float64]:
            batches.append(field.judged(np.array([decoded(field.space, person) for person in people])))
            return batches[-1].values

        ask_and_tell(algorithm, judge)
        return batches


def encoded(space: Space, genome: Genome, order: str) -> NDArray[np.float64]:
    """A genome of widths filled by an order, as the numbers that `decoded` makes it of."""
    place = (space.orders.index(order) + 0.5) / len(space.orders)
    return np.append(space.widths(genome) / space.sizes, place)


def decoded(space: Space, numbers: NDArray[np.float64]) -> Genome:
    """The genome for a share of each group, and a number that stands for an order.

    >>> scores = {"l1": [4.0, 1.0, 3.0, 2.0], "other": [1.0, 2.0, 3.0, 4.0]}
    >>> space = Space(4, [[0, 1], [2, 3]], scores=scores, price=lambda genomes: genomes.sum(1), units=[1])
    >>> decoded(space, np.array([0.5, 0.6, 0.9])).astype(int).tolist()
    [0, 1, 0, 1]
    >>> decoded(space, np.array([0.5, 0.01, 0.1])).astype(int).tolist()
    [1, 0, 0, 0]
    """
    shares, place = numbers[:-1], float(numbers[-1])
    order = space.orders[min(int(place * len(space.orders)), len(space.orders) - 1)]
    genome, counts = space.full(), space.rounded(space.sizes * shares)
    for group, count in enumerate(counts):
        gone = group in space.units and shares[group] < GONE
        genome = space.drop(genome, group) if gone else space.resize(genome, group, int(count), order)
    return space.repaired(genome)
