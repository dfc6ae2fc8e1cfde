"""How the guided strategy varies genomes: widths and orders change, units are removed and restored.

The price of the result does not matter: all widths are scaled to a price afterwards. An operator that does
not apply to its parents (no unit to restore) returns None.
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
    """The input of an operator."""

    space: Space
    parent: Genome
    other: Genome
    order: str
    rng: np.random.Generator

    def some_groups(self, least: int = 1) -> list[int]:
        """Some of the groups that are not gone; mostly few, sometimes half of them."""
        there = np.flatnonzero(self.space.widths(self.parent) > 0)
        most = max(least, len(there) // 2)
        count = min(len(there), least + int((most - least + 1) * self.rng.random() ** 3))
        return [int(group) for group in self.rng.choice(there, size=count, replace=False)]

    def dispensable(self) -> int | None:
        """A unit that is not gone, more often one that matters little."""
        gone = set(self.space.gone(self.parent))
        there = [unit for unit in self.space.units if unit not in gone]
        return there[self._early_position(len(there))] if there else None

    def missed(self) -> int | None:
        """A unit that is gone, more often one that matters much."""
        gone = self.space.gone(self.parent)
        return gone[::-1][self._early_position(len(gone))] if gone else None

    def _early_position(self, count: int) -> int:
        """A position in a list, more often near its beginning."""
        return int(count * self.rng.random() ** 2)


def rescale(v: Variation) -> Genome:
    """Change nothing but the price: what is good at one cost is tried at another."""
    return v.parent


def change_widths(v: Variation) -> Genome:
    """Scale the widths of some groups at random; the order decides which filters."""
    step = LEAST_STEP * (MOST_STEP / LEAST_STEP) ** v.rng.random()
    genome, widths = v.parent, v.space.widths(v.parent)
    groups = v.some_groups()
    factors = np.exp(v.rng.normal(0.0, step, size=len(groups)))
    wanted = widths.astype(np.float64)
    wanted[groups] *= factors
    counts = v.space.rounded(wanted)
    for group in groups:
        count = int(counts[group])
        if count == widths[group]:  # rounded away: change it by one filter, or one multiple
            count += int(v.space.multiples[group]) * (1 if v.rng.random() < 0.5 else -1)
            count = int(np.clip(count, 1, v.space.sizes[group]))
        genome = v.space.resize(genome, group, count, v.order)
    return genome


def trade(v: Variation) -> Genome | None:
    """Shrink one group and widen another by the same factor."""
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
    """Replace the filters of some groups by the first ones of the order."""
    genome = v.parent
    for group in v.some_groups():
        genome = v.space.refill(genome, group, v.order)
    return genome


def drop_unit(v: Variation) -> Genome | None:
    """Remove a unit; the others then share its price."""
    unit = v.dispensable()
    return None if unit is None else v.space.drop(v.parent, unit)


def restore_unit(v: Variation) -> Genome | None:
    """Restore a unit at the mean relative width of the other groups."""
    unit = v.missed()
    return None if unit is None else _with_unit_restored(v, v.parent, unit)


def swap_units(v: Variation) -> Genome | None:
    """Remove one unit and restore another."""
    back, away = v.missed(), v.dispensable()
    if back is None or away is None:
        return None
    return _with_unit_restored(v, v.space.drop(v.parent, away), back)


def cross(v: Variation) -> Genome | None:
    """Take each group from one of two parents."""
    if np.array_equal(v.parent, v.other):
        return None
    genome = v.parent.copy()
    for genes in v.space.groups:
        if v.rng.random() < 0.5:
            genome[genes] = v.other[genes]
    return genome


def _with_unit_restored(v: Variation, genome: Genome, unit: int) -> Genome:
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
