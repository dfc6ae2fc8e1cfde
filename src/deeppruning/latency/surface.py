"""The time of a layer over its two widths, known at some of them and read off in between.

>>> surface = Surface((4, 8), (2,), ((1.0,), (3.0,)))
>>> surface(np.array([4.0, 6.0, 8.0]), np.array([2.0, 2.0, 2.0])).tolist()
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Widths = NDArray[np.float64]

ALIGNED = 4  # widths that are multiples of it fill vector units and keep to faster layouts
_SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)
_ODD_SHARES = (1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class Surface:
    """Seconds at a grid of both extents of a weight."""

    firsts: tuple[int, ...]
    seconds: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]

    def __call__(self, first: Widths, second: Widths) -> Widths:
        """By straight lines between the points, and on beyond them."""
        grid = np.array(self.values)
        below, above, part = _between(np.array(self.firsts), first)
        left, right, share = _between(np.array(self.seconds), second)
        at_below = (1 - share) * grid[below, left] + share * grid[below, right]
        at_above = (1 - share) * grid[above, left] + share * grid[above, right]
        return np.asarray(np.maximum((1 - part) * at_below + part * at_above, 0.0))

    def to_table(self) -> list[Any]:
        """Plain values that `from_table` reads back."""
        return [list(self.firsts), list(self.seconds), [list(row) for row in self.values]]

    @classmethod
    def from_table(cls, table: list[Any]) -> Surface:
        """Read back what `to_table` wrote."""
        firsts, seconds, values = table
        return cls(
            tuple(map(int, firsts)), tuple(map(int, seconds)), tuple(tuple(map(float, row)) for row in values)
        )


def measure_surface(
    extents: tuple[int, int],
    free: tuple[bool, bool],
    levels: Callable[[int], list[int]],
    time: Callable[[int, int], float],
) -> Surface:
    """Ask for the time at all pairs of levels; an extent that no cut can change has but one."""
    firsts, seconds = (
        levels(extent) if is_free else [extent] for extent, is_free in zip(extents, free, strict=True)
    )
    values = tuple(tuple(time(first, second) for second in seconds) for first in firsts)
    return Surface(tuple(firsts), tuple(seconds), values)


def aligned_levels(extent: int) -> list[int]:
    """Some multiples of 4 up to an extent, and the extent itself.

    >>> aligned_levels(64), aligned_levels(10)
    ([4, 8, 16, 24, 32, 48, 64], [4, 8, 10])
    """
    wanted = {max(ALIGNED, ALIGNED * round(share * extent / ALIGNED)) for share in (0.0, *_SHARES)}
    return sorted({min(level, extent) for level in wanted} | {extent})


def odd_levels(extent: int) -> list[int]:
    """Some widths up to an extent of which none is a multiple of 4, unless it is the only one.

    >>> odd_levels(64), odd_levels(4)
    ([1, 15, 31, 63], [1, 3])
    """
    wanted = {ALIGNED * round(share * extent / ALIGNED) - 1 for share in _ODD_SHARES}
    return sorted({1} | {min(level, extent) for level in wanted if level >= 1})


def _between(levels: NDArray[np.int64], widths: Widths) -> tuple[Any, Any, Widths]:
    """The levels on both sides of each width, and which part of the way it lies from one to the other."""
    if len(levels) == 1:
        nothing = np.zeros(np.shape(widths), dtype=np.int64)
        return nothing, nothing, np.zeros(np.shape(widths))
    below = np.clip(np.searchsorted(levels, widths, side="right") - 1, 0, len(levels) - 2)
    part = (widths - levels[below]) / (levels[below + 1] - levels[below])
    return below, below + 1, part
