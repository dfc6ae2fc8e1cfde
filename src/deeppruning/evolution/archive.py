"""The archive: the best individual of each cost range, by shares of the original's cost.

>>> archive = Archive(low=0.2, high=0.8, bins=2)
>>> archive.bin(0.3), archive.bin(0.5), archive.bin(0.9)
(0, 1, None)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from deeppruning.errors import InputError
from deeppruning.roles import ORIGINAL

Member = TypeVar("Member")


class Archive(Generic[Member]):
    """Bins grow by a constant factor, because one filter matters more where few are left."""

    def __init__(self, *, low: float, high: float, bins: int) -> None:
        if not 0.0 < low < high < math.inf:
            raise InputError(f"the range of cost must rise from above 0, got {low} to {high}")
        if bins < 1:
            raise InputError(f"an archive needs at least 1 bin, got {bins}")
        self.low, self.high, self.bins = low, high, bins
        growth = high / low
        self._tops = [float(low * growth ** ((number + 1) / bins)) for number in range(bins)]
        self._members: dict[int, tuple[float, Member]] = {}
        self.original_cost = math.nan

    def scale_by(self, costs: Sequence[float]) -> None:
        """Take the original's cost from the costs of the first generation, which starts with the original.

        nan stands for a failed evaluation; if that of the original failed, the largest cost replaces it.
        """
        self.original_cost = next(iter(costs), math.nan)
        if math.isnan(self.original_cost):
            self.original_cost = max((cost for cost in costs if not math.isnan(cost)), default=math.nan)

    def offer(self, member: Member, *, operator: str, score: float, cost: float) -> bool | None:
        """Add an evaluated candidate if it is the best of its bin; returns whether it was added.

        None: the original, and a candidate without score or cost (nan), take no part.
        """
        share = cost / self.original_cost if self.original_cost > 0 else math.nan
        if operator == ORIGINAL or math.isnan(score) or math.isnan(share):
            return None
        return self.add(member, score=score, share=share)

    def bin(self, share: float) -> int | None:
        """The number of the bin for this share of the cost, None outside the range."""
        if not self.low <= share <= self.high:
            return None
        return min(bisect_left(self._tops, share), self.bins - 1)

    def top(self, number: int) -> float:
        """The largest share of the cost that belongs to a bin."""
        return self._tops[number]

    def add(self, member: Member, *, score: float, share: float) -> bool:
        """Add a member if it is the best of its bin so far; of equal ones the first stays."""
        number = self.bin(share)
        if number is None or (number in self._members and self._members[number][0] <= score):
            return False
        self._members[number] = (score, member)
        return True

    def near(self, number: int, reach: int) -> list[Member]:
        """The members of the bins at most `reach` away, or of the nearest non-empty bins."""
        if not self._members:
            return []
        nearest = min(abs(filled - number) for filled in self._members)
        within = max(reach, nearest)
        return [
            self._members[filled][1] for filled in sorted(self._members) if abs(filled - number) <= within
        ]

    def __iter__(self) -> Iterator[Member]:
        """From the cheapest to the costliest bin."""
        return (member for _, member in self.scored())

    def scored(self) -> Iterator[tuple[float, Member]]:
        """Members with their scores, from the cheapest to the costliest bin."""
        return (self._members[number] for number in sorted(self._members))

    def scores(self) -> dict[int, float]:
        """The score of each bin's member."""
        return {number: self._members[number][0] for number in sorted(self._members)}

    def __len__(self) -> int:
        return len(self._members)
