"""Repair of genomes: no layer may lose its last filter, whatever the bits say.

>>> from deeppruning.graph.repair import Repair
>>> repair = Repair(num_genes=4, layers=[np.array([0, 1]), np.array([2, 3])], min_channels=1)
>>> repair(np.array([[False, False, False, True]])).astype(int).tolist()
[[1, 0, 0, 1]]
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]


class Repair:
    """Switches removed genes back on, lowest first, until every limit is kept.

    `layers` and `pieces` list the gene of each filter (-1 for one that always stays). Every layer
    keeps at least `min_channels` filters (all of them if it has fewer) and, with `round_to`, a
    multiple of it (or all); every piece keeps at least one. The lowest removed gene comes back first:
    arbitrary, but the same every time and no judgement on which filter matters.
    """

    def __init__(
        self,
        *,
        num_genes: int,
        layers: Sequence[NDArray[np.int64]],
        pieces: Sequence[NDArray[np.int64]] = (),
        min_channels: int = 1,
        round_to: int = 1,
    ) -> None:
        runs = [(genes, min(min_channels, len(genes)), round_to) for genes in layers]
        runs += [(genes, 1, 1) for genes in pieces]
        self.runs = [run for run in runs if (run[0] >= 0).any()]
        self.round_to = round_to
        self.counting = np.zeros((num_genes, len(self.runs)), dtype=np.float32)
        self.always = np.zeros(len(self.runs))
        for column, (genes, _, _) in enumerate(self.runs):
            np.add.at(self.counting[:, column], genes[genes >= 0], 1.0)
            self.always[column] = (genes < 0).sum()
        self.needed = np.array([needed for _, needed, _ in self.runs])

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        repaired = population.copy()
        if not self.runs:
            return repaired
        rows: Iterable[int]
        if self.round_to > 1:
            rows = range(len(repaired))
        else:
            kept = repaired.astype(np.float32) @ self.counting + self.always
            rows = np.flatnonzero((kept < self.needed).any(axis=1)).tolist()
        for row in rows:
            while self._mend(repaired[row]):
                pass
        return repaired

    def _mend(self, genome: Bits) -> bool:
        """One pass over all runs, in place; true when a bit was switched on."""
        changed = False
        for genes, needed, multiple in self.runs:
            free = genes[genes >= 0]
            fixed = len(genes) - len(free)
            while True:
                kept = fixed + int(genome[free].sum())
                if kept == len(genes) or (kept >= needed and kept % multiple == 0):
                    break
                genome[free[~genome[free]].min()] = True
                changed = True
        return changed
