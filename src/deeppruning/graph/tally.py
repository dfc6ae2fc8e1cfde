"""Counting what stays: how many positions of each strip of genes a whole population keeps, at once.

>>> tally = Tally(3, [np.array([0, 1, -1]), np.array([2, 2])])
>>> tally(np.array([[True, False, True]])).tolist()
[[2.0, 2.0]]
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Tally:
    """Each strip lists the gene of every position, -1 for one that always stays.

    Neighbouring genes that count alike in every strip (the filters of one layer, as a rule) are summed
    first; what is left is a small product of matrices, however wide the layers are.
    """

    def __init__(self, num_genes: int, strips: Sequence[NDArray[np.int64]]) -> None:
        counts = np.zeros((num_genes, len(strips)), dtype=np.float32)
        self.always = np.zeros(len(strips))
        for column, genes in enumerate(strips):
            free = genes[genes >= 0]
            np.add.at(counts[:, column], free, 1.0)
            self.always[column] = len(genes) - len(free)
        changes = (counts[1:] != counts[:-1]).any(axis=1)
        self.starts = np.concatenate([[0], np.flatnonzero(changes) + 1])[:num_genes]
        self.weights = counts[self.starts].astype(np.float64)

    def __call__(self, population: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(genomes, strips): positions that stay. Exact, for they are sums of whole numbers."""
        if not len(self.starts):
            return np.tile(self.always, (len(population), 1))
        sums = np.add.reduceat(population, self.starts, axis=1, dtype=np.int32)
        return np.asarray(sums @ self.weights + self.always)
