"""Repair where whole units may go: what hangs on them goes too, and everything else keeps what it must."""

from deeppruning.graph.depth.find import Depth
from deeppruning.graph.plan import Bits
from deeppruning.graph.repair import FilterRepair


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
