"""Repair of genomes: no layer may lose its last filter, whatever the bits say.

>>> from deeppruning.graph.repair import FilterRepair
>>> repair = FilterRepair(num_genes=4, layers=[np.array([0, 1]), np.array([2, 3])], min_channels=1)
>>> repair(np.array([[False, False, False, True]])).astype(int).tolist()
[[1, 0, 0, 1]]
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.tally import Tally

Bits = NDArray[np.bool_]


def multiple_for(width: int, round_to: int | None) -> int:
    """What a layer of so many filters keeps a multiple of; left open (None), what vector units like.

    >>> [multiple_for(width, None) for width in (4, 8, 16, 64)], multiple_for(64, 3)
    ([1, 4, 8, 8], 3)
    """
    if round_to is not None:
        return round_to
    return 8 if width >= 16 else 4 if width >= 8 else 1


class FilterRepair:
    """Switches removed genes back on, lowest first, until every limit is kept.

    `layers` and `pieces` list the gene of each filter (-1 for one that always stays). Every layer
    keeps at least `min_channels` filters (all of them if it has fewer) and a multiple as `multiple_for`
    says (or all); every piece keeps at least one. The lowest removed gene comes back first:
    arbitrary, but the same every time and no judgement on which filter matters.
    """

    def __init__(
        self,
        *,
        num_genes: int,
        layers: Sequence[NDArray[np.int64]],
        pieces: Sequence[NDArray[np.int64]] = (),
        min_channels: int = 1,
        round_to: int | None = 1,
    ) -> None:
        strips = [
            (genes, min(min_channels, len(genes)), multiple_for(len(genes), round_to)) for genes in layers
        ]
        strips += [(genes, 1, 1) for genes in pieces]
        strips = [strip for strip in strips if (strip[0] >= 0).any()]
        self.strips = [genes for genes, _, _ in strips]
        self.tally = Tally(num_genes, self.strips)
        self.lengths = np.array([len(genes) for genes in self.strips])
        self.needed = np.array([needed for _, needed, _ in strips])
        self.multiples = np.array([multiple for _, _, multiple in strips])

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        repaired = population.copy()
        rows: NDArray[np.int64] = np.arange(len(repaired))
        while self.strips and len(rows):
            wrong = self._wrong(self.tally(repaired[rows]), slice(None))
            for row, strip in np.argwhere(wrong).tolist():
                self._mend(repaired[rows[row]], strip)
            rows = rows[wrong.any(axis=1)]  # a bit switched on may spoil the multiple of another layer
        return repaired

    def _wrong(self, kept: NDArray[np.float64], strips: slice | int) -> NDArray[np.bool_]:
        enough = (kept >= self.needed[strips]) & (kept % self.multiples[strips] == 0)
        return np.asarray(~enough & (kept != self.lengths[strips]))

    def _mend(self, genome: Bits, strip: int) -> None:
        """Switch bits of one strip on, in place, until it keeps what it must."""
        genes = self.strips[strip]
        free = genes[genes >= 0]
        removed = np.unique(free[~genome[free]]).tolist()
        kept = np.float64(len(genes) - len(free) + int(genome[free].sum()))
        for gene in removed:
            if not self._wrong(np.asarray(kept), strip):
                return
            genome[gene] = True
            kept += int((genes == gene).sum())
