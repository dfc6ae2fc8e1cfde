"""Methods that search: over bits as the paper does, or over widths; all with as many evaluations."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from deeppruning.comparison.problem import METHODS, Method, Network, Problem, Target, register_method
from deeppruning.config import SearchConfig
from deeppruning.errors import RunError
from deeppruning.evolution import Space
from deeppruning.genome import Genome
from deeppruning.objectives import as_objective
from deeppruning.refitting.probing import FEWEST
from deeppruning.runs import Evaluation
from deeppruning.searching.guide import Guide, load_or_make_guide
from deeppruning.searching.importance.orders import TOLERANCE, meet_flops, uniform_order
from deeppruning.searching.loop import ask_evaluate_tell
from deeppruning.searching.scan import scan_loss
from deeppruning.searching.strategies import guided_strategy, paper_strategy

NARROWEST = 0.1  # share of a group that a random width keeps at least
MOST_GONE = 0.6  # the largest probability that a unit is gone in a random candidate


def best_within(evaluations: Sequence[Evaluation], targets: Sequence[Target]) -> list[Genome]:
    """For each target the genome with the best score at most 2 % above its FLOPs."""
    values = np.array([(evaluation.judged, evaluation.objectives[1]) for evaluation in evaluations])
    return [evaluations[best_row(values, target.flops)].genome for target in targets]


def best_row(values: NDArray[np.float64], flops: float) -> int:
    """The row (score, FLOPs) of smallest score within the FLOPs, or else of the fewest FLOPs; never a nan.

    >>> best_row(np.array([[0.1, 90.0], [0.3, 50.0], [0.2, 51.0], [np.nan, np.nan]]), 50.0)
    2
    """
    scores, costs = np.where(np.isnan(values), np.inf, values).T
    if np.isinf(scores).all():
        raise RunError("every candidate of a method's search diverged or failed: it has none to propose")
    affordable = costs <= flops * (1 + TOLERANCE)
    if not affordable.any():
        return int(np.argmin(costs))
    return int(np.lexsort((-costs, np.where(affordable, scores, np.inf)))[0])


class BitSearch(Method):
    """A search over bits, from which a network is taken for every target.

    It is the candidate with the smallest error among those at most 2 % above the FLOPs of the target; random
    filters, which the search has not tried, are added back until it has these FLOPs.
    """

    kind = "searches"

    @abstractmethod
    def search(self, problem: Problem) -> list[Evaluation]:
        """All candidates."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The best candidate for each target, brought to its FLOPs."""
        generator = problem.generator()
        networks = []
        for target, genome in zip(targets, best_within(self.search(problem), targets), strict=True):
            order = generator.permutation(problem.graph.num_genes).tolist()
            networks.append(Network(meet_flops(problem.graph, genome, order, target.flops)))
        return networks


class Strategy(BitSearch):
    """The paper's evolution strategy on bits, with plus or comma selection, run with this seed."""

    def __init__(self, selection: str) -> None:
        self.selection = selection
        self.name = f"es-{selection}"

    def search(self, problem: Problem) -> list[Evaluation]:
        """Ask, evaluate and tell to the end."""
        config = replace(problem.search, selection=self.selection, seed=problem.seed)
        strategy = paper_strategy(problem.context, config)
        return list(chain.from_iterable(ask_evaluate_tell(strategy, problem.judge)))


@register_method
class RandomSearch(BitSearch):
    """The baseline of searches over bits: a random share to keep, and every filter drawn with it.

    The share is uniform from 0.1 to 1, so that the candidates cover the whole range of FLOPs.
    """

    name = "random-search"
    kind = "floors"

    def search(self, problem: Problem) -> list[Evaluation]:
        """All candidates at once: none depends on another."""
        generator = problem.generator()
        shares = generator.uniform(0.1, 1.0, size=(problem.search.evaluations, 1))
        drawn = generator.random((len(shares), problem.graph.num_genes)) < shares
        return problem.judge(problem.graph.repair(drawn))


@dataclass(frozen=True, eq=False)
class Field:
    """The input of a search over widths."""

    problem: Problem  # by refit
    config: SearchConfig  # with the seed of this repetition
    guide: Guide
    space: Space

    @classmethod
    def of(cls, problem: Problem) -> "Field":
        """The guide is computed for each method, unless its history has one."""
        judged = problem.by_refit()
        config = replace(problem.search, seed=problem.seed)
        look = partial(judged.map, scan_loss)
        guide = load_or_make_guide(judged.context, judged.history, look, config.threads)
        objective = as_objective("flops")
        space = guide.space(problem.graph, objective=objective, least=config.min_channels)
        return cls(judged, config, guide, space)

    @property
    def whole(self) -> float:
        """The FLOPs of the original."""
        return float(self.space.price(self.space.full()[None])[0])

    def brought_to(self, genome: Genome, flops: int) -> Genome:
        """The genome with its widths scaled to the FLOPs, unless it has them.

        Units that are gone are restored only if the other groups together have fewer FLOPs.
        """
        graph, order = self.problem.graph, self.space.orders[0]
        if abs(graph.flops(genome) / flops - 1) <= TOLERANCE:
            return genome
        scaled = self.space.fit(genome, float(flops), order)
        # Scaling all widths at once may leave a gap; single filters, the best first, close it.
        ranked = uniform_order(graph, self.space.scores[order])
        rest = self.space.full()
        for unit in self.space.gone(scaled):
            rest = self.space.drop(rest, unit)
        if graph.flops(rest) >= flops * (1 - TOLERANCE):
            ranked = [gene for gene in ranked if rest[gene]]
        return meet_flops(graph, scaled, ranked, flops)


class WidthSearch(Method):
    """A search over widths, evaluated after a refit, from which a network is taken for every target.

    It is the candidate with the best score among those at most 2 % above the FLOPs of the target. If it is
    more than 2 % below, all its widths are scaled up. Then it is refitted on the whole sample.
    """

    kind = "searches"
    least_sample = 2 * FEWEST
    judges_by_refit = True

    @abstractmethod
    def search(self, field: Field) -> list[Evaluation]:
        """All candidates."""

    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """The best candidate for each target, brought to its FLOPs and refitted."""
        field = Field.of(problem)
        pairs = zip(best_within(self.search(field), targets), targets, strict=True)
        return problem.refitted([field.brought_to(genome, target.flops) for genome, target in pairs])


@register_method
class Guided(WidthSearch):
    """The guided search of this package, run with this seed.

    It starts from every order at several costs and from mixtures of depth and width, keeps the best
    candidate at each cost, and varies widths, orders and units.
    """

    name = "guided"

    def search(self, field: Field) -> list[Evaluation]:
        """Ask, evaluate and tell to the end."""
        strategy = guided_strategy(field.problem.context, field.config, field.guide)
        return list(chain.from_iterable(ask_evaluate_tell(strategy, field.problem.judge)))


@register_method
class RandomWidths(WidthSearch):
    """The baseline of searches over widths: every candidate has a random cost, widths, order and units.

    Costs are uniform over the range of the options. It has the orders and the refit of our search, but learns
    nothing from its evaluations.
    """

    name = "random-widths"
    kind = "floors"

    def search(self, field: Field) -> list[Evaluation]:
        """All candidates at once: none depends on another."""
        generator = field.problem.generator()
        drawn = [self.draw(field, generator) for _ in range(field.config.evaluations)]
        return field.problem.judge(np.array(drawn))

    def draw(self, field: Field, generator: np.random.Generator) -> Genome:
        """One random candidate."""
        space = field.space
        cost = generator.uniform(field.config.low, field.config.high) * field.whole
        order = space.orders[int(generator.integers(len(space.orders)))]
        genome = space.full()
        for group, share in enumerate(generator.uniform(NARROWEST, 1.0, size=len(space.groups))):
            count = int(space.rounded(space.sizes * share)[group])
            genome = space.resize(genome, group, count, order)
        # Units are dropped as long as the rest can still have the cost.
        rest, chance = space.full(), generator.uniform(0.0, MOST_GONE)
        for unit in generator.permutation(space.units).tolist():
            without = space.drop(rest, int(unit))
            if generator.random() < chance and float(space.price(without[None])[0]) >= cost:
                genome, rest = space.drop(genome, int(unit)), without
        return space.fit(genome, cost, order)


METHODS.add(Strategy("plus"))
METHODS.add(Strategy("comma"))
