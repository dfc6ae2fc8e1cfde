"""At how many places of each input layers are looked at, and the memory that a refit then takes."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PLACES = 64
FULL_SOLVE = 2304  # unknowns per filter above which channels are mixed instead
MOST_UNKNOWNS = 8192  # channels above which a layer is left as cut
MOST_HELD = 2**27  # numbers of rows that are kept while a layer is solved
COPIES = 3  # of the rows of the layer that is being solved: as they come, joined, and weighted
SUMS = 3  # matrices of unknowns by unknowns, in double precision: two halves of the rows, and a factor


@dataclass(frozen=True)
class Density:
    """At how many places of each input layers are looked at, and how closely they are solved."""

    rows_per_unknown: int
    fewest_places: int
    full_solve: int  # unknowns per filter above which channels are mixed instead
    steps: int  # of a solution within intervals

    def places(self, unknowns: int, count: int) -> int:
        """Of each of `count` inputs, for a layer with so many unknowns per filter.

        >>> CANDIDATES.places(64, 1000), CANDIDATES.places(576, 100), THOROUGH.places(576, 100)
        (8, 35, 64)
        """
        rows = self.rows_per_unknown * min(unknowns, self.full_solve)
        enough = max(-(-rows // count), self.fewest_places)
        return max(1, min(enough, MOST_PLACES, MOST_HELD // (count * unknowns)))


CANDIDATES = Density(6, 8, FULL_SOLVE, 3)  # a search refits many of them
THOROUGH = Density(24, 16, 2 * FULL_SOLVE, 6)  # of networks that are handed out


@dataclass(frozen=True)
class LayerSize:
    """What a refit needs to know of a layer to say how much memory it takes."""

    unknowns: int  # per filter
    channels: int  # that a filter reads
    groups: int
    filters: int
    places: int  # of its output
    bytes: int  # of one number
    summed: bool  # whether what its answer is added to is recorded, too

    def recorded(self, count: int, density: Density) -> int:
        """Bytes that are kept of `count` inputs."""
        numbers = self.filters * (1 + self.summed)
        if self.unknowns > density.full_solve:
            numbers += self.channels
        return self._rows(count, density) * numbers * self.bytes

    def solved(self, count: int, density: Density) -> int:
        """Bytes that solving it takes."""
        unknowns = self.unknowns if self.unknowns <= density.full_solve else self.channels
        row = unknowns * self.groups + self.filters
        sums = SUMS * 8 * unknowns**2 * self.groups
        return COPIES * self._rows(count, density) * row * self.bytes + sums

    def _rows(self, count: int, density: Density) -> int:
        return count * min(self.places, density.places(self.unknowns, count))
