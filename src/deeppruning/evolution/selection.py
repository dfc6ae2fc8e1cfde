"""Choose the three individuals worth keeping: the knee and the two boundaries of a population.

>>> select(np.array([[0.1, 90.0], [0.2, 30.0], [0.9, 10.0]]))
Picks(knee=1, heavy=0, light=2)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError
from deeppruning.roles import SELECTED

Item = TypeVar("Item")


@dataclass(frozen=True)
class Picks(Generic[Item]):
    """One item per role: an index, an individual or a model; iterates in the order of SELECTED."""

    knee: Item
    heavy: Item
    light: Item

    def __iter__(self) -> Iterator[Item]:
        return iter((self.knee, self.heavy, self.light))

    def items(self) -> Iterator[tuple[str, Item]]:
        """Pairs of role and item."""
        return zip(SELECTED, self, strict=True)


def select(objectives: NDArray[np.float64]) -> Picks[int]:
    """The rows of `objectives` (n, 2), error and cost, that are knee, boundary heavy and boundary light.

    Heavy has the smallest error, light the smallest cost, and the knee the smallest Manhattan distance
    to the ideal point once both objectives are scaled to 0..1 over the whole population. An objective
    in which all individuals agree tells nothing: its term is 0 for all.

    Ties: heavy takes the smaller cost, light the smaller error, the knee the smaller error and then the
    smaller cost; whatever is still equal goes to the lower row. The knee may be the same row as a
    boundary, and all three are the same row when one individual is best in both objectives.
    """
    values = np.asarray(objectives, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 2 or len(values) == 0:
        raise InputError(f"objectives must have shape (n, 2) with n of at least 1, got {values.shape}")
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise InputError(
            f"objectives must be finite, got {values[bad[0]].tolist()} for individual {bad[0]}; "
            "leave out a candidate that failed: it cannot be selected"
        )
    error, cost = values.T
    rows = np.arange(len(values))
    distance = _scaled_to_unit(error) + _scaled_to_unit(cost)
    # lexsort takes its most important key last.
    return Picks(
        knee=int(np.lexsort((rows, cost, error, distance))[0]),
        heavy=int(np.lexsort((rows, cost, error))[0]),
        light=int(np.lexsort((rows, error, cost))[0]),
    )


def _scaled_to_unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return np.zeros_like(values) if low == high else (values - low) / (high - low)
