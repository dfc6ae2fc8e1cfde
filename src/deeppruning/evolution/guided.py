"""The guided strategy as ask and tell: widths and orders are varied, the best at each cost are kept.

>>> space = Space(
...     8, [[0, 1, 2, 3], [4, 5, 6, 7]], scores={"l1": np.arange(8.0)}, price=lambda genomes: genomes.sum(1)
... )
>>> strategy = GuidedStrategy(space, offspring=4, generations=3, low=0.2, high=0.9, seed=1)
>>> while not strategy.done:
...     genomes = strategy.ask()
...     kept = genomes.mean(axis=1)
...     strategy.tell(np.stack([1 - kept, kept], axis=1))
>>> strategy.evaluations, strategy.picks.light.cost < strategy.picks.heavy.cost
(15, True)
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError
from deeppruning.evolution.archive import Archive
from deeppruning.evolution.chances import Chances
from deeppruning.evolution.generations import Batch, Generations, Individual, Origin
from deeppruning.evolution.operators import OPERATORS, Variation
from deeppruning.evolution.seeds import Seed, seeds
from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.space import Space
from deeppruning.evolution.steering import Steering
from deeppruning.genome import Genome
from deeppruning.roles import ORIGINAL

SEEDED = 0.5  # at most this part of all evaluations goes to seeds
REACH = 2  # bins from which a parent may come
TRIES = 20  # to find a genome that has not been there yet
FOCUSED = 0.5  # of seeds and offspring are made for the focus, where there is one
NEAR = 0.9  # of the focus, from which on a cost that has to be measured is near it
ALIKE = 0.01  # costs that differ by less count as equal when the light pick is taken


class GuidedStrategy(Generations):
    """Quality at every cost: an archive of the best by cost, from which parents are drawn.

    The first genome is the original: its cost is what shares are shares of. Then come the seeds, then
    offspring of the archive, each brought to the price of the bin it is made for. As many genomes are
    asked for as by `EvolutionStrategy`: 3 + offspring, then offspring a generation. What is selected on is
    the score, where one is told beside the objectives, and the error elsewhere; the three picks are those
    of the paper, over the archive, by error and cost.

    `losses` are what a scan found for each group, for balanced seeds (see `balance`).

    `focus` is a share of the original's cost: half of the seeds and of the offspring are made to cost just
    that. `limits` is the space under the price that is to be 1 there, where several limits are to be kept.

    The random numbers of a generation depend on `seed` and the generation alone, so telling the same
    objectives again leads through the same genomes: that is how a run is resumed.
    """

    def __init__(
        self,
        space: Space,
        *,
        offspring: int = 20,
        generations: int = 15,
        low: float = 0.15,
        high: float = 0.85,
        bins: int = 16,
        losses: Sequence[Sequence[float]] = (),
        focus: float | None = None,
        limits: Space | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(offspring=offspring, generations=generations, seed=seed)
        self.space = space
        self.archive: Archive[Individual] = Archive(low=low, high=high, bins=bins)
        self._refuse_empty_range()
        self._known: set[bytes] = set()
        self._original_cost: float | None = None
        self._steering = Steering()
        self._operators = Chances(tuple(OPERATORS))
        self._orders = Chances(space.orders)
        wanted = [self.archive.top(number) for number in range(self.archive.bins)]
        self._seeds = seeds(space, wanted, losses)
        self._focus, self._limits = focus, limits
        if focus is not None:
            both = zip_longest(self._focused_seeds(focus, losses), self._seeds)
            self._seeds = (seed for seed in chain.from_iterable(both) if seed is not None)

    @property
    def population(self) -> tuple[Individual, ...]:
        """The archive, by id."""
        return tuple(sorted(self.archive, key=lambda individual: individual.id))

    @property
    def picks(self) -> Picks[Individual]:
        """Knee, heavy and light of the archive, as the paper chooses them but for what is a tie.

        Costs that hardly differ count as equal for the light one. Where several err alike, as on few images
        or easy ones, the score tells which is the most accurate, and that is the heavy one.
        """
        found = self.picks_without(())
        if found is None:
            raise InputError("there are no picks before a generation is told: call ask, then tell")
        return found

    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None:
        """The same without some individuals, by their ids; None where no other is left."""
        held = [individual for individual in self.population if individual.id not in refused]
        if not held:
            return None
        chosen = select(np.array([individual.objectives for individual in held]))
        cheapest = held[chosen.light].cost
        alike = [individual for individual in held if individual.cost <= cheapest * (1 + ALIKE)]
        light = min(alike, key=lambda individual: (individual.error, individual.cost, individual.id))
        scored = [entry for entry in self.archive.scored() if entry[1] in held]
        heavy = min(scored, key=lambda entry: (entry[1].error, entry[0], entry[1].cost, entry[1].id))[1]
        return Picks(knee=held[chosen.knee], heavy=heavy, light=light)

    def tell(self, objectives: NDArray[np.float64], scores: NDArray[np.float64] | None = None) -> None:
        """Learn error and cost (k, 2), and what to select on (k,), of the genomes asked for, in their order.

        A row of two nan is a genome without objectives. As long as the archive is empty, one within the
        range must have them; where there is none, an error is raised and the same can be told again.
        """
        batch, values = self._answered(objectives)
        judged = values[:, 0] if scores is None else np.asarray(scores, dtype=np.float64)
        if judged.shape != (len(values),):
            raise InputError(f"scores must have shape {(len(values),)}, got {judged.shape}")
        if not len(self.archive):
            self._original_cost = self._cost_of_the_original(values)
        self._learn(batch, values, judged)
        if not len(self.archive):
            raise InputError(
                f"no genome of generation {self.generation} lies within {self.archive.low:.0%} to "
                f"{self.archive.high:.0%} of the original's cost: there is nothing to select from"
            )
        self._go_on()

    def _cost_of_the_original(self, values: NDArray[np.float64]) -> float:
        """What shares are shares of; should the original itself have failed, the costliest stands in."""
        costs = values[~np.isnan(values[:, 1]), 1]
        if not len(costs):
            raise InputError(f"none of the {len(values)} genomes of generation 1 has objectives")
        cost = float(values[0, 1] if not np.isnan(values[0, 1]) else costs.max())
        if cost <= 0:
            raise InputError(
                f"the original costs {cost:g}, of which nothing is a share: the guided strategy needs a "
                "second objective above 0; give another one, or take the strategy paper"
            )
        return cost

    def _learn(self, batch: Batch, values: NDArray[np.float64], judged: NDArray[np.float64]) -> None:
        assert self._original_cost is not None
        prices = self.space.price(batch.genomes) / self._whole()
        for number, genome, origin, price, (error, cost), score in zip(
            self.ids, batch.genomes, batch.origins, prices, values, judged, strict=True
        ):
            if origin.operator == ORIGINAL or np.isnan((error, cost, score)).any():
                continue
            self._steering.learn(price=float(price), cost=float(cost) / self._original_cost)
            individual = Individual(number, self.generation, genome, float(error), float(cost))
            entered = self.archive.add(
                individual, score=float(score), share=float(cost) / self._original_cost
            )
            if origin.parents:
                self._operators.learn(origin.operator, success=entered)
                self._orders.learn(origin.order, success=entered)

    def _propose(self, rng: np.random.Generator) -> Batch:
        found: list[tuple[Genome, Origin]] = []
        seeded = int(SEEDED * self.evaluations)
        if self._told == 0:
            found.append((self.space.full(), Origin(ORIGINAL)))
            seeded = max(seeded, len(self.ids))  # there is nothing else to begin with
        while len(found) < len(self.ids) and self._next_id + len(found) < seeded:
            seed = next(self._seeds, None)
            if seed is None:
                break
            found.append((seed.genome, Origin(seed.operator)))
        self._known |= {genome.tobytes() for genome, _ in found}
        while len(found) < len(self.ids):
            found.append(self._offspring(rng))
        return Batch(np.array([genome for genome, _ in found]), [origin for _, origin in found])

    def _offspring(self, rng: np.random.Generator) -> tuple[Genome, Origin]:
        """A genome that has not been there, unless none is found in a fair number of tries."""
        for _ in range(TRIES):
            genome, origin = self._vary(rng)
            if genome.tobytes() not in self._known:
                break
        self._known.add(genome.tobytes())
        return genome, origin

    def _vary(self, rng: np.random.Generator) -> tuple[Genome, Origin]:
        focused = self._focus is not None and rng.random() < FOCUSED
        number = self._focused_bin() if focused else int(rng.integers(self.archive.bins))
        near = self.archive.near(number, REACH)
        order = self._orders.draw(rng)
        if not near:  # nothing has been evaluated yet: the first generation is larger than there are seeds
            share = self.archive.low + (self.archive.high - self.archive.low) * rng.random()
            start = self._randomly(rng)
            return self.space.fit(start, share * self._whole(), order), Origin("random widths")
        parent, other = (near[int(rng.integers(len(near)))] for _ in range(2))
        while True:
            name = self._operators.draw(rng)
            varied = OPERATORS[name](Variation(self.space, parent.genome, other.genome, order, rng))
            if varied is not None:
                break
        parents = (parent.id, other.id) if name == "cross" else (parent.id,)
        if focused:
            child = self._fit_to_focus(varied, parent, order)
        else:
            child = self.space.fit(varied, self._price_for(parent, number), order)
        return child, Origin(name, parents, order)

    def _focused_bin(self) -> int:
        assert self._focus is not None
        within = min(max(self._focus, self.archive.low), self.archive.high)
        number = self.archive.bin(within)
        assert number is not None
        return number

    def _fit_to_focus(self, varied: Genome, parent: Individual, order: str) -> Genome:
        """The genome at the focus and within all limits, as near to them as filters can be counted out."""
        assert self._focus is not None
        if not self._steering.exact or self._limits is None:
            price = self._price_at(parent, low=NEAR * self._focus, top=self._focus)
            child = self.space.fill(self.space.fit(varied, price, order), price, order)
            if self._limits is None or self._limits.price(child[None])[0] <= 1.0:
                return child
        return self._limits.fill(self._limits.fit(varied, 1.0, order), 1.0, order)

    def _focused_seeds(self, focus: float, losses: Sequence[Sequence[float]]) -> Iterator[Seed]:
        space, price = (self.space, focus * self._whole()) if self._limits is None else (self._limits, 1.0)
        whole = float(space.price(space.full()[None])[0])
        for seed in seeds(space, [price / whole], losses):
            yield Seed(space.fill(seed.genome, price, space.orders[0]), seed.operator)

    def _price_for(self, parent: Individual, number: int) -> float:
        """What a child of this parent is to be priced at, to cost what belongs to a bin."""
        low = self.archive.top(number - 1) if number else self.archive.low
        return self._price_at(parent, low=low, top=self.archive.top(number))

    def _price_at(self, parent: Individual, *, low: float, top: float) -> float:
        assert self._original_cost is not None
        price = float(self.space.price(parent.genome[None])[0])
        return self._steering.price(price, parent.cost / self._original_cost, low=low, top=top)

    def _randomly(self, rng: np.random.Generator) -> Genome:
        genome = self.space.full()
        for group, size in enumerate(self.space.sizes):
            count = max(1, int(size * rng.uniform(0.1, 1.0)))
            genome = self.space.resize(genome, group, count, self.space.orders[0])
        return genome

    def _whole(self) -> float:
        return float(self.space.price(self.space.full()[None])[0])

    def _refuse_empty_range(self) -> None:
        least = float(self.space.price(self.space.repaired(~self.space.full())[None])[0]) / self._whole()
        if self.archive.high <= least:
            raise InputError(
                f"the range of cost ends at {self.archive.high:.0%} of the original's, but this network "
                f"cannot be cut below {least:.1%}: raise its end (high)"
            )
