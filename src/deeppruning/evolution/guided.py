"""The guided strategy as ask and tell: it varies widths and orders and keeps the best at each cost.

>>> space = Space(
...     8, [[0, 1, 2, 3], [4, 5, 6, 7]], scores={"l1": np.arange(8.0)}, price=lambda genomes: genomes.sum(1)
... )
>>> strategy = GuidedStrategy(space, offspring=4, generations=3, low=0.2, high=0.9, bins=4, seed=1)
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
from deeppruning.evolution.generations import Batch, Generations, Individual, Origin
from deeppruning.evolution.learning import Chances, Steering
from deeppruning.evolution.operators import OPERATORS, Variation
from deeppruning.evolution.seeds import Seed, seeds
from deeppruning.evolution.selection import Picks, select
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome
from deeppruning.roles import ORIGINAL

SEEDED = 0.75  # at most this part of all evaluations goes to seeds
SEEDED_WITH_FOCUS = 0.5  # there are few seeds at one cost: its place is for their offspring
REACH = 2  # bins from which a parent may come
TRIES = 20  # to find a genome that is new
EVENLY = 0.5  # of the offspring are made for bins drawn evenly; others where there is most to gain
FOCUSED = 0.75  # of the offspring are made for the focus, if there is one
NEAR = 0.9  # of the focus: from here on a measured cost counts as near it
ALIKE = 0.01  # costs that differ by less count as equal when the light pick is chosen


class GuidedStrategy(Generations):
    """An archive of the best individual in each cost range, from which parents are drawn.

    The first genome is the original: other costs are shares of its cost. Then come the seeds, then offspring
    of the archive, each fitted to the price of the bin it is made for. The number of genomes is that of
    `EvolutionStrategy`. Selection is on the score where one is told beside the objectives, else on the error;
    the three picks are those of the paper, among the archive, by error and cost.

    `losses` are the result of a scan, for balanced seeds. `focus` is a share of the original's cost: three
    quarters of the offspring are made for it, and the seeds that a scan gives. `limits` is the space with a
    price that is 1 where several limits are met. Seeds take a part of the evaluations that are `planned`:
    all, unless time ends the search.
    """

    def __init__(
        self,
        space: Space,
        *,
        offspring: int,
        generations: int,
        low: float,
        high: float,
        bins: int,
        losses: Sequence[Sequence[float]] = (),
        focus: float | None = None,
        limits: Space | None = None,
        planned: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(offspring=offspring, generations=generations, seed=seed)
        self._planned = self.evaluations if planned is None else planned
        self.space = space
        self.archive: Archive[Individual] = Archive(low=low, high=high, bins=bins)
        self._refuse_empty_range()
        self._proposed: set[bytes] = set()
        self._steering = Steering()
        self._operators = Chances(tuple(OPERATORS))
        self._orders = Chances(space.orders)
        self._seeds = seeds(space, [self.archive.top(number) for number in range(bins)], losses)
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
        """Knee, heavy and light of the archive, as the paper chooses them except for ties.

        Costs that hardly differ count as equal for the light pick. Among equal errors, which are common on
        few or easy images, the score decides which one is the heavy pick.
        """
        picks = self.picks_without(())
        if picks is None:
            raise InputError("nothing is selected before a generation is told: call ask, then tell")
        return picks

    def picks_without(self, refused: Container[int]) -> Picks[Individual] | None:
        """The picks without some individuals; None where no other is left."""
        left = [individual for individual in self.population if individual.id not in refused]
        if not left:
            return None
        chosen = select(np.array([individual.objectives for individual in left]))
        cheapest = left[chosen.light].cost
        alike = [individual for individual in left if individual.cost <= cheapest * (1 + ALIKE)]
        light = min(alike, key=lambda individual: (individual.error, individual.cost, individual.id))
        scored = [entry for entry in self.archive.scored() if entry[1] in left]
        heavy = min(scored, key=lambda entry: (entry[1].error, entry[0], entry[1].cost, entry[1].id))[1]
        return Picks(knee=left[chosen.knee], heavy=heavy, light=light)

    def tell(self, objectives: NDArray[np.float64], scores: NDArray[np.float64] | None = None) -> None:
        """Fill the archive; the default score is the error.

        As long as the archive is empty, one genome must lie within its range; otherwise an error is raised
        and the same generation can be told again.
        """
        batch, values = self._batch_with_objectives(objectives)
        scores = values[:, 0] if scores is None else np.asarray(scores, dtype=np.float64)
        if scores.shape != (len(values),):
            raise InputError(f"scores must have shape {(len(values),)}, got {scores.shape}")
        if not len(self.archive):
            self._scale_archive(values[:, 1].tolist())
        self.improved = 0
        self._learn_objectives(batch, values, scores)
        if not len(self.archive):
            raise InputError(
                f"no genome of generation {self.generation} lies within {self.archive.low:.0%} to "
                f"{self.archive.high:.0%} of the original's cost: there is nothing to select from"
            )
        new = {genome.tobytes() for genome in batch.genomes} - self._proposed
        self.novel = len(new)
        self._proposed |= new
        self._start_next_generation()

    def _scale_archive(self, costs: list[float]) -> None:
        """Take the original's cost from the first generation; costs the archive cannot use are refused."""
        self.archive.scale_by(costs)
        if np.isnan(self.archive.original_cost):
            raise InputError(f"none of the {len(costs)} genomes of generation 1 has objectives")
        if self.archive.original_cost <= 0:
            raise InputError(
                f"the original costs {self.archive.original_cost:g}, but the guided strategy needs a second "
                "objective above 0; give another one, or use the strategy paper"
            )

    def _learn_objectives(
        self, batch: Batch, values: NDArray[np.float64], scores: NDArray[np.float64]
    ) -> None:
        """Offer each individual to the archive, and learn which operators and prices succeed."""
        prices = self.space.price(batch.genomes) / self._price_of_original()
        for number, genome, origin, price, (error, cost), score in zip(
            self.ids, batch.genomes, batch.origins, prices, values, scores, strict=True
        ):
            individual = Individual(number, self.generation, genome, float(error), float(cost))
            added = self.archive.offer(
                individual, operator=origin.operator, score=float(score), cost=float(cost)
            )
            if added is None:
                continue
            self.improved += added
            self._steering.learn(price=float(price), cost=float(cost) / self.archive.original_cost)
            if origin.parents:
                self._operators.learn(origin.operator, success=added)
                self._orders.learn(origin.order, success=added)

    def _propose(self, rng: np.random.Generator) -> Batch:
        """Seeds first, then offspring of the archive."""
        proposed: list[tuple[Genome, Origin]] = []
        seeded = int((SEEDED if self._focus is None else SEEDED_WITH_FOCUS) * self._planned)
        if self._told == 0:
            proposed.append((self.space.full(), Origin(ORIGINAL)))
            seeded = max(seeded, len(self.ids))  # there is nothing else to begin with
        while len(proposed) < len(self.ids) and self._next_id + len(proposed) < seeded:
            seed = next(self._seeds, None)
            if seed is None:
                break
            proposed.append((seed.genome, Origin(seed.operator)))
        taken = self._proposed | {genome.tobytes() for genome, _ in proposed}
        while len(proposed) < len(self.ids):
            proposed.append(self._new_offspring(rng, taken))
            taken.add(proposed[-1][0].tobytes())
        return Batch(np.array([genome for genome, _ in proposed]), [origin for _, origin in proposed])

    def _new_offspring(self, rng: np.random.Generator, taken: Container[bytes]) -> tuple[Genome, Origin]:
        """A genome that is not taken, unless none is found in `TRIES` tries."""
        for _ in range(TRIES):
            genome, origin = self._vary_parent(rng)
            if genome.tobytes() not in taken:
                break
        return genome, origin

    def _vary_parent(self, rng: np.random.Generator) -> tuple[Genome, Origin]:
        """A child of two archive members near a bin, by an operator and an order that are drawn."""
        focused = self._focus is not None and rng.random() < FOCUSED
        number = self._focused_bin() if focused else self._drawn_bin(rng)
        near = self.archive.near(number, REACH)
        order = self._orders.draw(rng)
        if not near:  # nothing has been evaluated: there are fewer seeds than genomes in the first generation
            share = self.archive.low + (self.archive.high - self.archive.low) * rng.random()
            return self.space.fit(self._random_widths(rng), share * self._price_of_original(), order), Origin(
                "random widths"
            )
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

    def _drawn_bin(self, rng: np.random.Generator) -> int:
        """A bin to make offspring for: any, or more often one in which even the best has a high score."""
        scores = self.archive.scores()
        weights = np.maximum(list(scores.values()), 0.0)
        if rng.random() < EVENLY or not 0.0 < weights.sum() < np.inf:
            return int(rng.integers(self.archive.bins))
        return int(rng.choice(list(scores), p=weights / weights.sum()))

    def _focused_bin(self) -> int:
        """The bin of the focus."""
        assert self._focus is not None
        within = min(max(self._focus, self.archive.low), self.archive.high)
        number = self.archive.bin(within)
        assert number is not None
        return number

    def _fit_to_focus(self, varied: Genome, parent: Individual, order: str) -> Genome:
        """The genome at the focus and within all limits, as near to them as whole filters allow."""
        assert self._focus is not None
        if not self._steering.exact or self._limits is None:
            price = self._price_for_cost(parent, low=NEAR * self._focus, top=self._focus)
            child = self.space.fill(self.space.fit(varied, price, order), price, order)
            if self._limits is None or self._limits.price(child[None])[0] <= 1.0:
                return child
        return self._limits.fill(self._limits.fit(varied, 1.0, order), 1.0, order)

    def _focused_seeds(self, focus: float, losses: Sequence[Sequence[float]]) -> Iterator[Seed]:
        """Seeds at the focus, filled up to the limits.

        After a scan only its own: offspring of these, all at one cost, are better than the other seeds.
        """
        space, price = (
            (self.space, focus * self._price_of_original()) if self._limits is None else (self._limits, 1.0)
        )
        whole = float(space.price(space.full()[None])[0])
        for seed in seeds(space, [price / whole], losses, only_balanced=True):
            yield Seed(space.fill(seed.genome, price, space.orders[0]), seed.operator)

    def _price_for(self, parent: Individual, number: int) -> float:
        """The price of a child of this parent, so that its cost lies in a bin."""
        low = self.archive.top(number - 1) if number else self.archive.low
        return self._price_for_cost(parent, low=low, top=self.archive.top(number))

    def _price_for_cost(self, parent: Individual, *, low: float, top: float) -> float:
        """The price of a child of this parent, so that its cost lies in [low, top]."""
        price = float(self.space.price(parent.genome[None])[0])
        return self._steering.price(price, parent.cost / self.archive.original_cost, low=low, top=top)

    def _random_widths(self, rng: np.random.Generator) -> Genome:
        """A genome of random widths, where there is no parent yet."""
        genome = self.space.full()
        for group, size in enumerate(self.space.sizes):
            count = max(1, int(size * rng.uniform(0.1, 1.0)))
            genome = self.space.resize(genome, group, count, self.space.orders[0])
        return genome

    def _price_of_original(self) -> float:
        return float(self.space.price(self.space.full()[None])[0])

    def _refuse_empty_range(self) -> None:
        """Refuse a cost range below the cheapest network there is."""
        least = (
            float(self.space.price(self.space.repaired(~self.space.full())[None])[0])
            / self._price_of_original()
        )
        if self.archive.high <= least:
            raise InputError(
                f"the range of cost ends at {self.archive.high:.0%} of the original's, but this network "
                f"cannot be cut below {least:.1%}: raise its end (high)"
            )
