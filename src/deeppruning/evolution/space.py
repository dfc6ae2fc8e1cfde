"""What the guided strategy varies: how many filters each group keeps, and which ones, by an order.

>>> scores = {"l1": [4.0, 1.0, 3.0, 2.0]}
>>> space = Space(4, [[0, 1, 2, 3]], scores=scores, price=lambda genomes: genomes.sum(1))
>>> space.resize(space.full(), 0, 2, "l1").astype(int).tolist()
[1, 0, 1, 0]
>>> space.fit(space.full(), 3.0, "l1").astype(int).tolist()
[1, 0, 1, 1]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deeppruning.errors import InputError
from deeppruning.genome import Genome, Population

Numbers = NDArray[np.int64]
STEPS = 16  # factors tried at once when widths are scaled to a price
ROUNDS = 3
CLOSE = 0.998  # of a price: no filters are added beyond it


class Space:
    """Genomes as widths of groups, filled by orders of their filters; knows their price, not their error.

    `groups` lists the genes of each group, `scores` a score per gene for each order (the highest stays
    longest). Widths are multiples of one number, or of one per group. `units` are the groups that may lose
    all their filters, the most dispensable first. Every other group keeps at least `least` filters. `price`
    must be cheap: it is called thousands of times.
    """

    def __init__(
        self,
        num_genes: int,
        groups: Sequence[ArrayLike],
        *,
        scores: Mapping[str, ArrayLike],
        price: Callable[[Population], NDArray[np.float64]],
        repair: Callable[[Population], Population] = lambda population: population,
        units: Sequence[int] = (),
        multiple: int | Sequence[int] = 1,
        least: int = 1,
    ) -> None:
        self.num_genes = num_genes
        self.groups: list[Numbers] = [np.asarray(genes, dtype=np.int64) for genes in groups]
        if not self.groups:
            raise InputError("there is nothing to vary: no group of genes is given")
        self.sizes: Numbers = np.array([len(genes) for genes in self.groups])
        self._price, self._repair = price, repair
        self.units = tuple(int(unit) for unit in units)
        self.multiples: Numbers = np.broadcast_to(np.asarray(multiple, dtype=np.int64), self.sizes.shape)
        self.least: Numbers = -(-least // self.multiples) * self.multiples
        if not scores:
            raise InputError("filters cannot be chosen without an order of them: give scores")
        self.scores = {name: self._checked_order_scores(name, values) for name, values in scores.items()}
        self._ranked = {
            name: [genes[np.argsort(-values[genes], kind="stable")] for genes in self.groups]
            for name, values in self.scores.items()
        }

    def priced(self, price: Callable[[Population], NDArray[np.float64]]) -> Space:
        """The same space under another price."""
        twin = copy.copy(self)
        twin._price = price
        return twin

    @property
    def orders(self) -> list[str]:
        """The names of the orders."""
        return list(self.scores)

    def full(self) -> Genome:
        """The original."""
        return np.ones(self.num_genes, dtype=np.bool_)

    def repaired(self, genome: Genome) -> Genome:
        """The genome as it is used."""
        return np.asarray(self._repair(genome[None].copy())[0])

    def price(self, population: Population) -> NDArray[np.float64]:
        """What each genome costs."""
        return np.asarray(self._price(population), dtype=np.float64)

    def widths(self, genome: Genome) -> Numbers:
        """Filters kept, group by group."""
        return np.array([int(genome[genes].sum()) for genes in self.groups])

    def gone(self, genome: Genome) -> list[int]:
        """The units that keep nothing."""
        return [unit for unit in self.units if not genome[self.groups[unit]].any()]

    def resize(self, genome: Genome, group: int, count: int, order: str) -> Genome:
        """A copy in which a group keeps `count` filters: the last by the order go, the first come back."""
        ranked = self._ranked[order][group]
        on = genome[ranked]
        changed, surplus = genome.copy(), int(on.sum()) - count
        if surplus > 0:
            changed[ranked[on][-surplus:]] = False
        elif surplus < 0:
            changed[ranked[~on][:-surplus]] = True
        return changed

    def refill(self, genome: Genome, group: int, order: str) -> Genome:
        """A copy in which a group keeps the same number of filters, but the first ones by the order."""
        ranked = self._ranked[order][group]
        changed, count = genome.copy(), int(genome[ranked].sum())
        changed[ranked] = np.arange(len(ranked)) < count
        return changed

    def drop(self, genome: Genome, unit: int) -> Genome:
        """A copy without a unit."""
        changed = genome.copy()
        changed[self.groups[unit]] = False
        return changed

    def scaled(self, genome: Genome, factor: float, order: str) -> Genome:
        """A copy in which the widths of all groups that are not gone are multiplied by a factor."""
        widths = self.widths(genome)
        wanted = self.rounded(widths * factor)
        changed = genome
        for group in np.flatnonzero((widths > 0) & (wanted != widths)):
            changed = self.resize(changed, int(group), int(wanted[group]), order)
        return changed

    def rounded(self, widths: NDArray[Any]) -> Numbers:
        """Whole widths, within the limits of each group and in its multiples."""
        whole = np.maximum(np.round(widths / self.multiples) * self.multiples, self.least)
        return np.asarray(np.minimum(whole, self.sizes), dtype=np.int64)

    def fit(self, genome: Genome, price: float, order: str) -> Genome:
        """The genome with all widths scaled to cost at most `price`, and nearly that.

        If the smallest or largest widths miss the price, those are returned.
        """
        low, high = np.log(1.0 / max(int(self.sizes.max()), 2)), np.log(float(self.sizes.max()) + 1.0)
        best = self.repaired(self.scaled(genome, float(np.exp(low)), order))
        for _ in range(ROUNDS):
            factors = np.linspace(low, high, STEPS + 2)[1:]
            tried = np.array([self.scaled(genome, float(np.exp(factor)), order) for factor in factors])
            tried = np.asarray(self._repair(tried))  # before it is priced: a repair brings filters back
            affordable = np.flatnonzero(self.price(tried) <= price)
            if not len(affordable):
                high = factors[0]
                continue
            last = int(affordable[-1])
            best, low = tried[last], factors[last]
            if last == len(factors) - 1:
                break
            high = factors[last + 1]
        return best

    def fill(self, genome: Genome, price: float, order: str) -> Genome:
        """The genome with filters added to single groups, the costliest that still fits the price first.

        Scaling all widths alike leaves room below a price where groups are narrow.
        """
        while (spent := float(self.price(genome[None])[0])) < CLOSE * price:
            widths = self.widths(genome)
            wider_by_one = np.minimum(widths + self.multiples, self.sizes)
            wider = [
                self.resize(genome, int(group), int(wider_by_one[group]), order)
                for group in np.flatnonzero((widths > 0) & (widths < self.sizes))
            ]
            if not wider:
                break
            tried = np.asarray(self._repair(np.array(wider)))
            prices = self.price(tried)
            fitting = np.where((prices > spent) & (prices <= price), prices, -np.inf)
            if not np.isfinite(fitting.max()):
                break
            genome = tried[int(fitting.argmax())]
        return genome

    def uniform(self, price: float, order: str, without: Sequence[int] = ()) -> Genome:
        """The same share of every group by an order, without some units, at most at this price."""
        genome = self.full()
        for unit in without:
            genome = self.drop(genome, unit)
        return self.fit(genome, price, order)

    def anywhere(self, price: float, order: str) -> Genome:
        """Without the lowest scores of all groups, relative to each group's mean, at most at this price."""
        relative = np.ones(self.num_genes)
        for genes in self.groups:
            values = self.scores[order][genes]
            relative[genes] = values / max(float(np.abs(values).mean()), 1e-12)
        decided = np.concatenate(self.groups)
        going = decided[np.argsort(relative[decided], kind="stable")]
        low, high = 0, len(going)  # the fewest that must go
        while low < high:
            middle = (low + high) // 2
            genome = self.full()
            genome[going[:middle]] = False
            if self.price(self.repaired(genome)[None])[0] <= price:
                high = middle
            else:
                low = middle + 1
        genome = self.full()
        genome[going[:low]] = False
        return self.repaired(genome)

    def _checked_order_scores(self, name: str, values: ArrayLike) -> NDArray[np.float64]:
        scores = np.asarray(values, dtype=np.float64)
        if scores.shape != (self.num_genes,):
            raise InputError(
                f"the order {name!r} has scores of shape {scores.shape}, the network has {self.num_genes} "
                "genes: give one score for each"
            )
        if not np.isfinite(scores).all():
            gene = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise InputError(f"the order {name!r} has the score {scores[gene]} for gene {gene}: not finite")
        return scores
