"""Repair of genomes: no layer loses its last filter, and the outputs keep depending on the input.

>>> from deeppruning.graph.repair import FilterRepair
>>> repair = FilterRepair(num_genes=4, layers=[np.array([0, 1]), np.array([2, 3])], min_channels=1)
>>> repair(np.array([[False, False, False, True]])).astype(int).tolist()
[[1, 0, 0, 1]]
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.depth import Depth
from deeppruning.graph.paths import InputPaths
from deeppruning.graph.plan import Plan, Tally


def multiple_for(width: int, round_to: int | None) -> int:
    """The multiple of filters that a layer of this width keeps; with None, one that suits vector units.

    >>> [multiple_for(width, None) for width in (4, 8, 16, 64)], multiple_for(64, 3)
    ([1, 4, 8, 8], 3)
    """
    if round_to is not None:
        return round_to
    return 8 if width >= 16 else 4 if width >= 8 else 1


class FilterRepair:
    """Switches removed genes back on, lowest first, until every limit is met.

    `layers` and `pieces` list the gene of each filter (-1 for one that always stays). Every layer keeps at
    least `min_channels` filters (all of them if it has fewer), in the multiple given by `multiple_for` (or
    all); every piece keeps at least one. The lowest removed gene comes back first: arbitrary, but always
    the same and no judgement on which filter matters.
    """

    def __init__(
        self,
        *,
        num_genes: int,
        layers: Sequence[Genes],
        pieces: Sequence[Genes] = (),
        min_channels: int = 1,
        round_to: int | None = 1,
    ) -> None:
        limits = [
            (genes, min(min_channels, len(genes)), multiple_for(len(genes), round_to)) for genes in layers
        ]
        limits += [(genes, 1, 1) for genes in pieces]
        limits = [limit for limit in limits if (limit[0] >= 0).any()]
        self.strips = [genes for genes, _, _ in limits]
        self.tally = Tally(num_genes, self.strips)
        self.lengths = np.array([len(genes) for genes in self.strips])
        self.least = np.array([least for _, least, _ in limits])
        self.multiples = np.array([multiple for _, _, multiple in limits])

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        repaired = population.copy()
        rows: NDArray[np.int64] = np.arange(len(repaired))
        while self.strips and len(rows):
            wrong = self._wrong(self.tally(repaired[rows]), slice(None))
            for row, strip in np.argwhere(wrong).tolist():
                self._fill(repaired[rows[row]], strip)
            rows = rows[wrong.any(axis=1)]  # a bit switched on may spoil the multiple of another layer
        return repaired

    def _wrong(self, counts: NDArray[np.float64], strips: slice | int) -> Bits:
        """Which strips miss their limits."""
        enough = (counts >= self.least[strips]) & (counts % self.multiples[strips] == 0)
        return np.asarray(~enough & (counts != self.lengths[strips]))

    def _fill(self, genome: Bits, strip: int) -> None:
        """Switch bits of one strip on, in place, until it meets its limits."""
        genes = self.strips[strip]
        free = genes[genes >= 0]
        removed = np.unique(free[~genome[free]]).tolist()
        count = np.float64(len(genes) - len(free) + int(genome[free].sum()))
        for gene in removed:
            if not self._wrong(np.asarray(count), strip):
                return
            genome[gene] = True
            count += int((genes == gene).sum())


class DepthRepair:
    """A unit is either empty, with all that goes with it, or keeps what the inner repair asks for."""

    def __init__(self, inner: FilterRepair, depth: Depth) -> None:
        self.inner = inner
        self.depth = depth

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        gone = [self.depth.genes(self.depth.close(genome)) for genome in population]
        filled = population.copy()
        for genome, genes in zip(filled, gone, strict=True):
            genome[genes] = True  # so that the inner repair leaves them alone
        repaired = self.inner(filled)
        for genome, genes in zip(repaired, gone, strict=True):
            genome[genes] = False
        return repaired


class PathRepair:
    """Switches genes on until the outputs depend on the input, genes of layers that are not gone first."""

    def __init__(
        self, inner: Callable[[Bits], Bits], paths: Sequence[InputPaths], layers: Sequence[Genes]
    ) -> None:
        self.inner = inner
        self.paths = paths
        self.layers = layers
        self.always = all(each.always(layers) for each in paths)  # unless a layer is gone
        self.tally = Tally(paths[0].num_genes, layers)

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        repaired = self.inner(population)
        rows: NDArray[np.int64] = np.arange(len(repaired))
        if self.always:
            rows = np.flatnonzero((self.tally(repaired) == 0).any(axis=1))
        for row in rows[~self._connected(repaired[rows])].tolist():
            repaired[row] = self.inner(self._with_path(repaired[row])[None])[0]
        return repaired

    def _connected(self, population: Bits) -> Bits:
        """Which genomes have a path from every input that counts."""
        return np.asarray(np.all([paths(population) for paths in self.paths], axis=0))

    def _with_path(self, genome: Bits) -> Bits:
        """The genome with genes of a path: repeatedly the last gene of the shortest prefix that gives one."""
        mended, removed = genome.copy(), np.flatnonzero(~genome)
        gone = np.zeros(len(genome), dtype=np.bool_)
        for genes in self.layers:
            own = genes[genes >= 0]
            gone[own] |= len(own) == len(genes) and not genome[own].any()
        order = removed[np.argsort(gone[removed], kind="stable")]
        while not self._connected(mended[None])[0]:
            fails, works = 0, len(order)  # lengths of prefixes that are switched on
            while works - fails > 1:
                middle = (fails + works) // 2
                trial = mended.copy()
                trial[order[:middle]] = True
                if self._connected(trial[None])[0]:
                    works = middle
                else:
                    fails = middle
            mended[order[works - 1]] = True
            order = order[: works - 1]
        return mended


def filter_repair(plan: Plan, *, limits: bool = False) -> FilterRepair:
    """Keeps every layer and piece alive; with `limits`, also as wide as the user asked for."""
    return FilterRepair(
        num_genes=plan.num_genes,
        layers=[layer.genes for layer in plan.layers],
        pieces=plan.pieces,
        min_channels=plan.min_channels if limits else 1,
        round_to=plan.round_to if limits else 1,
    )


def repair_for(plan: Plan) -> Callable[[Bits], Bits]:
    """The whole repair of a plan: its genomes can then be cut and keep its limits."""
    filters = filter_repair(plan, limits=True)
    inner = filters if plan.depth is None else DepthRepair(filters, plan.depth)
    if not plan.paths:
        return inner
    repair = PathRepair(inner, plan.paths, [layer.genes for layer in plan.layers])
    return inner if repair.always and plan.depth is None else repair
