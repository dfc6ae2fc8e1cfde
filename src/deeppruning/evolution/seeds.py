"""What the guided strategy starts from: every order at several prices, and mixtures of depth and width.

The search can then not end below a method that needs none, at the shares it starts from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deeppruning.evolution.balance import Balance
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome

DEPTHS = (0.0, 0.15, 0.3, 0.45, 0.6)  # share of the units that are left out
FEW_DEPTHS = (0.0, 0.3)  # with the second order
PLACES = 5  # of the range of cost that every mixture is made for


@dataclass(frozen=True, eq=False)
class Seed:
    """A genome to begin with, and in words where it comes from."""

    genome: Genome
    operator: str


def seeds(space: Space, shares: Sequence[float], losses: Sequence[Sequence[float]] = ()) -> Iterator[Seed]:
    """All seeds for these shares of the original's price, those of which most is to be hoped first.

    `losses` are those of a scan of each group (see `balance`). Equal seeds, and those that cannot come near
    their price, are left out.
    """
    whole = float(space.price(space.full()[None])[0])
    known: set[bytes] = set()
    for seed, share in (*_balanced(space, shares, whole, losses), *_all(space, shares, whole)):
        spent = float(space.price(seed.genome[None])[0]) / whole
        if seed.genome.tobytes() not in known and 0.8 * share <= spent <= 1.05 * share:
            known.add(seed.genome.tobytes())
            yield seed


def _balanced(
    space: Space, shares: Sequence[float], whole: float, losses: Sequence[Sequence[float]]
) -> Iterator[tuple[Seed, float]]:
    if not losses:
        return
    order, falling = space.orders[0], sorted(shares, reverse=True)
    balance = Balance(space, losses, order)
    for share, genome in zip(falling, balance.genomes([share * whole for share in falling]), strict=False):
        yield Seed(space.fit(genome, share * whole, order), "balanced"), share


def _all(space: Space, shares: Sequence[float], whole: float) -> Iterator[tuple[Seed, float]]:
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
