"""The genomes that the guided strategy starts from: balanced widths, orders, mixtures of depth and width.

Balanced widths come from a scan, which says what is lost when a single group keeps a share of its filters.
Losses are assumed to add up, which they only nearly do: this is where a search begins, not where it ends.
With the other seeds the search cannot end below a method without a search, at the costs it starts from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deeppruning.evolution.space import Space
from deeppruning.genome import Genome

STEPS = 12  # in which a group is thinned
FRESH = 8  # steps after which the prices of all moves are computed again
DEPTHS = (0.0, 0.15, 0.3, 0.45, 0.6)  # shares of the units that are left out
FEW_DEPTHS = (0.0, 0.3)  # with the second order
PLACES = 5  # costs within the range for which each mixture is made

Move = tuple[int, int]  # a group, and the width it gets


@dataclass(frozen=True, eq=False)
class Seed:
    """A genome to start from, and a description of its origin."""

    genome: Genome
    operator: str


def seeds(
    space: Space,
    shares: Sequence[float],
    losses: Sequence[Sequence[float]] = (),
    *,
    only_balanced: bool = False,
) -> Iterator[Seed]:
    """All seeds for these shares of the original's price, the most promising first.

    `losses` are the result of a scan, a row per group: of four values the first is the loss with three
    quarters of the filters, the last that without the group. After a scan, there can be `only_balanced`
    seeds. Duplicates, and seeds that miss their price by far, are left out.
    """
    whole = float(space.price(space.full()[None])[0])
    yielded: set[bytes] = set()
    others = () if losses and only_balanced else _seeds_of_every_order(space, shares, whole)
    for seed, share in (*_balanced_seeds(space, shares, whole, losses), *others):
        spent = float(space.price(seed.genome[None])[0]) / whole
        if seed.genome.tobytes() not in yielded and 0.8 * share <= spent <= 1.05 * share:
            yielded.add(seed.genome.tobytes())
            yield seed


def _balanced_seeds(
    space: Space, shares: Sequence[float], whole: float, losses: Sequence[Sequence[float]]
) -> Iterator[tuple[Seed, float]]:
    """Seeds whose groups all lose about as much, by the losses of the scan."""
    if not losses:
        return
    order, falling = space.orders[0], sorted(shares, reverse=True)
    prices = [share * whole for share in falling]
    with_units = list(Balance(space, losses, order).genomes(prices))
    # What several missing units cost together is far from the sum of their losses.
    all_there = list(Balance(space, losses, order, depth=False).genomes(prices))
    for place in coarse_to_fine(len(falling)):
        share = falling[place]
        for genomes, operator in ((with_units, "balanced"), (all_there, "balanced widths")):
            if place < len(genomes):  # the others cannot come down to this price
                yield Seed(space.fit(genomes[place], share * whole, order), operator), share


def coarse_to_fine(count: int) -> list[int]:
    """The numbers from 0 to `count` - 1, so that those at the start are spread over all of them.

    A search that can afford only some of its seeds then has them all over its range of costs.

    >>> coarse_to_fine(9)
    [0, 8, 4, 2, 6, 1, 3, 5, 7]
    """
    places = list(range(count))[:: max(1, count - 1)]
    while len(places) < count:
        known = sorted(places)
        middles = ((low + high) // 2 for low, high in pairwise(known) if high - low > 1)
        places += middles
    return places


def _seeds_of_every_order(
    space: Space, shares: Sequence[float], whole: float
) -> Iterator[tuple[Seed, float]]:
    """Seeds of every order, with fewer and fewer units and at several costs."""
    places = [shares[round(place)] for place in np.linspace(0, len(shares) - 1, min(PLACES, len(shares)))]
    for order, depths in zip(space.orders, (DEPTHS, FEW_DEPTHS), strict=False):
        for count in sorted({round(depth * len(space.units)) for depth in depths}):
            for share in places:
                genome = space.uniform(share * whole, order, space.units[:count])
                yield Seed(genome, f"{order}, {count} units less" if count else order), share
    for share in places[::2]:
        for order in space.orders:
            yield Seed(space.uniform(share * whole, order), order), share
            yield Seed(space.anywhere(share * whole, order), f"{order} anywhere"), share


class Balance:
    """Thins groups step by step, always where the loss per unit of price is smallest."""

    def __init__(
        self, space: Space, losses: Sequence[Sequence[float]], order: str, *, depth: bool = True
    ) -> None:
        self.space = space
        self.order = order
        self._units = space.units if depth else ()
        self._losses = [self._loss_curve(row) for row in losses]

    def genomes(self, prices: Sequence[float]) -> Iterator[Genome]:
        """For each of the falling prices, the balanced genome of at most that price."""
        space, genome = self.space, self.space.full()
        spent = float(space.price(genome[None])[0])
        rates: dict[Move, float] = {}
        taken = 0
        for price in prices:
            while spent > price:
                moves = self._thinning_moves(genome)
                stale = moves if taken % FRESH == 0 else [move for move in moves if move not in rates]
                rates = {move: rates[move] for move in moves if move in rates and move not in stale}
                rates |= self._loss_rates(genome, stale, spent)
                if not rates:
                    return
                group, count = min(rates, key=lambda move: (rates[move], move))
                genome = space.resize(genome, group, count, self.order)
                spent = float(space.price(genome[None])[0])
                taken += 1
            yield space.repaired(genome)

    def _thinning_moves(self, genome: Genome) -> list[Move]:
        """Each group with its next smaller width and, where it may be removed, with none."""
        moves = []
        for group, width in enumerate(self.space.widths(genome).tolist()):
            multiple = int(self.space.multiples[group])
            step = max(multiple, int(self.space.sizes[group]) // STEPS)
            next_width = (width - step) // multiple * multiple
            if next_width >= self.space.least[group]:
                moves.append((group, next_width))
            if width and group in self._units:
                moves.append((group, 0))
        return moves

    def _loss_rates(self, genome: Genome, moves: Sequence[Move], spent: float) -> dict[Move, float]:
        """The loss of each move per unit of price saved."""
        if not moves:
            return {}
        widths = self.space.widths(genome)
        changed = np.array([self.space.resize(genome, group, count, self.order) for group, count in moves])
        saved = spent - self.space.price(changed)
        return {
            (group, count): (
                self._loss_of_width(group, count) - self._loss_of_width(group, int(widths[group]))
            )
            / gain
            for (group, count), gain in zip(moves, saved.tolist(), strict=True)
            if gain > 0
        }

    def _loss_of_width(self, group: int, count: int) -> float:
        losses = self._losses[group]
        return float(np.interp(count / self.space.sizes[group], np.linspace(0.0, 1.0, len(losses)), losses))

    def _loss_curve(self, row: Sequence[float]) -> NDArray[np.float64]:
        """Losses from no filter to all; where that of none is infinite, the last two are extrapolated."""
        *levels, gone = row
        if not np.isfinite(gone):
            gone = levels[-1] + 2 * abs(levels[-1] - levels[-2])
        # A scan may dip by chance, but cutting more is never taken to be safer.
        rising = np.maximum.accumulate(np.maximum([0.0, *levels, gone], 0.0))
        finite = np.nan_to_num(rising, posinf=1e9)
        return finite[::-1]
