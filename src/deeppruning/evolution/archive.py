"""The archive: the best individual of each bin of cost, over a range of shares of the original's.

>>> archive = Archive(low=0.2, high=0.8, bins=2)
>>> archive.bin(0.3), archive.bin(0.5), archive.bin(0.9)
(0, 1, None)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, TypeVar

from deeppruning.errors import InputError

Kept = TypeVar("Kept")


class Archive(Generic[Kept]):
    """Bins grow by a constant factor: a filter more or less counts for more where few are left."""

    def __init__(self, *, low: float, high: float, bins: int) -> None:
        if not 0.0 < low < high < math.inf:
            raise InputError(f"the range of cost must rise from above 0, got {low} to {high}")
        if bins < 1:
            raise InputError(f"an archive needs at least 1 bin, got {bins}")
        self.low, self.high, self.bins = low, high, bins
        growth = high / low
        self._tops = [float(low * growth ** ((number + 1) / bins)) for number in range(bins)]
        self._held: dict[int, tuple[float, Kept]] = {}

    def bin(self, share: float) -> int | None:
        """The number of the bin for this share of the cost, None outside the range."""
        if not self.low <= share <= self.high:
            return None
        return min(bisect_left(self._tops, share), self.bins - 1)

    def top(self, number: int) -> float:
        """The largest share of the cost that belongs to a bin."""
        return self._tops[number]

    def add(self, individual: Kept, *, score: float, share: float) -> bool:
        """Enter an individual if it is the best of its bin so far; equal ones leave the first in place."""
        number = self.bin(share)
        if number is None or (number in self._held and self._held[number][0] <= score):
            return False
        self._held[number] = (score, individual)
        return True

    def near(self, number: int, reach: int) -> list[Kept]:
        """Those in the bins at most `reach` away, or in the nearest bins that hold any."""
        if not self._held:
            return []
        nearest = min(abs(held - number) for held in self._held)
        within = max(reach, nearest)
        return [self._held[held][1] for held in sorted(self._held) if abs(held - number) <= within]

    def __iter__(self) -> Iterator[Kept]:
        """From the cheapest to the costliest bin."""
        return (self._held[number][1] for number in sorted(self._held))

    def scored(self) -> Iterator[tuple[float, Kept]]:
        """The same with the scores they were entered with."""
        return (self._held[number] for number in sorted(self._held))

    def __len__(self) -> int:
        return len(self._held)
