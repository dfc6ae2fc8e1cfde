"""Prices: sums over parameters of uses x product of widths, for whole populations at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Price:
    """A sum over parameters of weight x product of widths, with equal products added up beforehand."""

    constant: float
    factors: NDArray[np.int64]  # (terms, most strips a parameter has); padded by a strip of width 1
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        uses: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        cuts: Mapping[str, Sequence[tuple[int, int]]],
        *,
        single: int,
    ) -> Price:
        """The price of `uses` of each element of some parameters; `single` is the strip whose width is 1."""
        constant = 0.0
        terms: dict[tuple[int, ...], float] = {}
        for name, count in uses.items():
            cut = cuts.get(name, ())
            rest = float(count)
            for dimension, extent in enumerate(shapes[name]):
                if all(dimension != other for other, _ in cut):
                    rest *= extent
            if cut:
                key = tuple(sorted(strip for _, strip in cut))
                terms[key] = terms.get(key, 0.0) + rest
            else:
                constant += rest
        longest = max((len(key) for key in terms), default=1)
        factors = np.array([key + (single,) * (longest - len(key)) for key in terms], dtype=np.int64)
        return cls(constant, factors.reshape(len(terms), longest), np.array(list(terms.values())))

    def total(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum for each row of widths."""
        padded = np.hstack([widths, np.ones((len(widths), 1))])
        products = padded[:, self.factors[:, 0]]
        for column in self.factors.T[1:]:
            products = products * padded[:, column]
        return np.asarray(products @ self.weights + self.constant)
