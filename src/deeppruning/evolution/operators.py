"""How offspring arise in the guided strategy: widths change, orders change, units go and come back.

Every operator takes parents and gives a genome whose price does not matter yet: all widths are scaled to
it afterwards. One that does not apply to its parents (no unit to bring back) gives None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deeppruning.evolution.space import Space
from deeppruning.genome import Genome

LEAST_STEP, MOST_STEP = 0.1, 0.7  # spread of the logarithm of a width's factor


@dataclass(frozen=True)
class Variation:
    """What an operator has to work with: one parent or two, an order, random numbers."""

    space: Space
    parent: Genome
    other: Genome
    order: str
    rng: np.random.Generator

    def some_groups(self, least: int = 1) -> list[int]:
        """Some of the groups that are there; mostly few, now and then half of them."""
        there = np.flatnonzero(self.space.widths(self.parent) > 0)
        most = max(least, len(there) // 2)
        count = min(len(there), least + int((most - least + 1) * self.rng.random() ** 3))
        return [int(group) for group in self.rng.choice(there, size=count, replace=False)]

    def dispensable(self) -> int | None:
        """A unit that is there, those that matter least more often than others."""
        gone = set(self.space.gone(self.parent))
        there = [unit for unit in self.space.units if unit not in gone]
        return there[self._early(len(there))] if there else None

    def missed(self) -> int | None:
        """A unit that is gone, those that matter most more often than others."""
        gone = self.space.gone(self.parent)
        return gone[::-1][self._early(len(gone))] if gone else None

    def _early(self, count: int) -> int:
        """A place in a list, its beginning more often than its end."""
        return int(count * self.rng.random() ** 2)


def rescale(v: Variation) -> Genome:
    """Nothing but the price changes: what is good at one cost is tried at another."""
    return v.parent


def change_widths(v: Variation) -> Genome:
    """Scale the widths of some groups at random; which filters is decided by the order."""
    step = LEAST_STEP * (MOST_STEP / LEAST_STEP) ** v.rng.random()
    genome, widths = v.parent, v.space.widths(v.parent)
    groups = v.some_groups()
    factors = np.exp(v.rng.normal(0.0, step, size=len(groups)))
    wanted = widths.astype(np.float64)
    wanted[groups] *= factors
    counts = v.space.rounded(wanted)
    for group in groups:
        count = int(counts[group])
        if count == widths[group]:  # a step too small to be seen: one filter, or one multiple, all the same
            count += int(v.space.multiples[group]) * (1 if v.rng.random() < 0.5 else -1)
            count = int(np.clip(count, 1, v.space.sizes[group]))
        genome = v.space.resize(genome, group, count, v.order)
    return genome


def trade(v: Variation) -> Genome | None:
    """One group gives filters, another gets the same share more."""
    groups = v.some_groups(least=2)[:2]
    if len(groups) < 2:
        return None
    factor = float(np.exp(abs(v.rng.normal(0.0, MOST_STEP))))
    wanted = v.space.widths(v.parent).astype(np.float64)
    wanted[groups[0]] /= factor
    wanted[groups[1]] *= factor
    counts = v.space.rounded(wanted)
    genome = v.parent
    for group in groups:
        genome = v.space.resize(genome, group, int(counts[group]), v.order)
    return genome


def change_order(v: Variation) -> Genome:
    """Some groups keep as many filters, but others."""
    genome = v.parent
    for group in v.some_groups():
        genome = v.space.refill(genome, group, v.order)
    return genome


def drop_unit(v: Variation) -> Genome | None:
    """A unit goes, and its price is shared among the rest."""
    unit = v.dispensable()
    return None if unit is None else v.space.drop(v.parent, unit)


def restore_unit(v: Variation) -> Genome | None:
    """A unit comes back as wide as the groups that are there are in the mean."""
    unit = v.missed()
    return None if unit is None else _with_unit(v, v.parent, unit)


def swap_units(v: Variation) -> Genome | None:
    """One unit goes, another comes back."""
    back, away = v.missed(), v.dispensable()
    if back is None or away is None:
        return None
    return _with_unit(v, v.space.drop(v.parent, away), back)


def cross(v: Variation) -> Genome | None:
    """Each group comes from one of two parents."""
    if np.array_equal(v.parent, v.other):
        return None
    genome = v.parent.copy()
    for genes in v.space.groups:
        if v.rng.random() < 0.5:
            genome[genes] = v.other[genes]
    return genome


def _with_unit(v: Variation, genome: Genome, unit: int) -> Genome:
    widths = v.space.widths(genome)
    there = widths > 0
    share = float(np.mean(widths[there] / v.space.sizes[there])) if there.any() else 1.0
    count = int(v.space.rounded(v.space.sizes * share)[unit])
    return v.space.resize(genome, unit, count, v.order)


OPERATORS: dict[str, Callable[[Variation], Genome | None]] = {
    "scale": rescale,
    "widths": change_widths,
    "trade": trade,
    "order": change_order,
    "drop": drop_unit,
    "restore": restore_unit,
    "swap": swap_units,
    "cross": cross,
}
