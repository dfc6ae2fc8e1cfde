"""Widths balanced by a scan: wherever the next filters are missed least for what they cost, they go.

The scan says what is lost when one group alone keeps some share of its filters. Losses are taken to add up,
which they do not quite: what comes out is where a search begins, not where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.evolution.space import Space
from deeppruning.genome import Genome

LEVELS = (0.75, 0.5, 0.25)  # shares of one group's filters that a scan looks at, before it is gone
STEPS = 12  # in which a group is thinned
FRESH = 8  # steps after which prices of all moves are asked for again


class Balance:
    """What each group loses at any width, read off a scan: at `LEVELS`, and without it where it may go."""

    def __init__(self, space: Space, losses: Sequence[Sequence[float]], order: str) -> None:
        self.space = space
        self.order = order
        self._shares = np.array([0.0, *reversed(LEVELS), 1.0])
        self._losses = [self._curve(row) for row in losses]

    def genomes(self, prices: Sequence[float]) -> Iterator[Genome]:
        """For each price, which must fall, the balanced genome of at most that price."""
        space, genome = self.space, self.space.full()
        spent = float(space.price(genome[None])[0])
        worth: dict[tuple[int, int], float] = {}
        taken = 0
        for price in prices:
            while spent > price:
                moves = self._moves(genome)
                stale = moves if taken % FRESH == 0 else [move for move in moves if move not in worth]
                worth = {move: worth[move] for move in moves if move in worth and move not in stale}
                worth |= self._worth(genome, stale, spent)
                if not worth:
                    return
                group, count = min(worth, key=lambda move: (worth[move], move))
                genome = space.resize(genome, group, count, self.order)
                spent = float(space.price(genome[None])[0])
                taken += 1
            yield space.repaired(genome)

    def _moves(self, genome: Genome) -> list[tuple[int, int]]:
        """Groups with the width they could have next: a step less or, where they may go, none."""
        found = []
        for group, width in enumerate(self.space.widths(genome).tolist()):
            multiple = int(self.space.multiples[group])
            step = max(multiple, int(self.space.sizes[group]) // STEPS)
            next_width = (width - step) // multiple * multiple
            if next_width >= self.space.least[group]:
                found.append((group, next_width))
            if width and group in self.space.units:
                found.append((group, 0))
        return found

    def _worth(
        self, genome: Genome, moves: Sequence[tuple[int, int]], spent: float
    ) -> dict[tuple[int, int], float]:
        """What each move loses for a unit of price."""
        if not moves:
            return {}
        widths = self.space.widths(genome)
        changed = np.array([self.space.resize(genome, group, count, self.order) for group, count in moves])
        saved = spent - self.space.price(changed)
        return {
            (group, count): (self._loss(group, count) - self._loss(group, int(widths[group]))) / gain
            for (group, count), gain in zip(moves, saved.tolist(), strict=True)
            if gain > 0
        }

    def _loss(self, group: int, count: int) -> float:
        return float(np.interp(count / self.space.sizes[group], self._shares, self._losses[group]))

    def _curve(self, row: Sequence[float]) -> NDArray[np.float64]:
        """Losses from no filter to all; where that of none is not known, the last two are drawn on."""
        *levels, gone = row
        if not np.isfinite(gone):
            gone = levels[-1] + 2 * abs(levels[-1] - levels[-2])
        # A scan may dip by luck, but to cut more is never taken to be safer.
        rising = np.maximum.accumulate(np.maximum([0.0, *levels, gone], 0.0))
        finite = np.nan_to_num(rising, posinf=1e9)
        return finite[::-1]
