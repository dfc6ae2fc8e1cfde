"""Repair where whole units may go: what hangs on them goes too, and everything else keeps what it must."""

from collections.abc import Callable, Sequence

import numpy as np

from deeppruning.graph.depth.find import Depth
from deeppruning.graph.depth.hearing import Hearing
from deeppruning.graph.plan import Bits, Genes, Plan
from deeppruning.graph.repair import FilterRepair
from deeppruning.graph.tally import Tally


class DepthRepair:
    """A unit is empty, with all that goes with it, or keeps what the ordinary repair asks for."""

    def __init__(self, ordinary: FilterRepair, depth: Depth) -> None:
        self.ordinary = ordinary
        self.depth = depth

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        gone = [self.depth.genes(self.depth.close(genome)) for genome in population]
        filled = population.copy()
        for genome, genes in zip(filled, gone, strict=True):
            genome[genes] = True  # not to be mended
        repaired = self.ordinary(filled)
        for genome, genes in zip(repaired, gone, strict=True):
            genome[genes] = False
        return repaired


class HearingRepair:
    """Switches genes on until the outputs hear the input: of layers that are left first, the lowest first."""

    def __init__(
        self, inner: Callable[[Bits], Bits], hearings: Sequence[Hearing], layers: Sequence[Genes]
    ) -> None:
        self.inner = inner
        self.hearings = hearings
        self.layers = layers
        self.certain = all(hearing.certain(layers) for hearing in hearings)  # unless a layer is gone
        self.tally = Tally(hearings[0].num_genes, layers)

    def __call__(self, population: Bits) -> Bits:
        """A repaired copy of the population (genomes, genes)."""
        repaired = self.inner(population)
        rows = (
            np.flatnonzero((self.tally(repaired) == 0).any(axis=1))
            if self.certain
            else np.arange(len(repaired))
        )
        for row in rows[~self._heard(repaired[rows])].tolist():
            repaired[row] = self.inner(self._mended(repaired[row])[None])[0]
        return repaired

    def _heard(self, population: Bits) -> Bits:
        return np.asarray(np.all([hearing(population) for hearing in self.hearings], axis=0))

    def _mended(self, genome: Bits) -> Bits:
        """The genome with the genes of a path, which needs the last of the fewest that give one."""
        mended, removed = genome.copy(), np.flatnonzero(~genome)
        gone = np.zeros(len(genome), dtype=np.bool_)
        for genes in self.layers:
            own = genes[genes >= 0]
            gone[own] |= len(own) == len(genes) and not genome[own].any()
        order = removed[np.argsort(gone[removed], kind="stable")]
        while not self._heard(mended[None])[0]:
            fails, works = 0, len(order)  # how many, from the first on, are switched on
            while works - fails > 1:
                middle = (fails + works) // 2
                trial = mended.copy()
                trial[order[:middle]] = True
                if self._heard(trial[None])[0]:
                    works = middle
                else:
                    fails = middle
            mended[order[works - 1]] = True
            order = order[: works - 1]
        return mended


def repair_for(plan: Plan) -> Callable[[Bits], Bits]:
    """All that makes a genome one that can be cut, within the limits of the plan."""
    ordinary = plan.repair(limits=True)
    inner = ordinary if plan.depth is None else DepthRepair(ordinary, plan.depth)
    if not plan.hearings:
        return inner
    found = HearingRepair(inner, plan.hearings, [layer.genes for layer in plan.layers])
    return inner if found.certain and plan.depth is None else found
