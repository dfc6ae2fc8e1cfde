"""The two ways in which new genomes arise: flipping bits and mixing parents.

>>> flip(np.ones((1, 4), dtype=bool), 1.0, np.random.default_rng(0))
array([[False, False, False, False]])
"""

import numpy as np

from deeppruning.genome import Population


def flip(genomes: Population, probability: float, rng: np.random.Generator) -> Population:
    """A copy of the genomes in which every bit is inverted with the given probability."""
    return genomes ^ (rng.random(genomes.shape) < probability)


def recombine(parents: Population, rho: int, count: int, rng: np.random.Generator) -> Population:
    """`count` genomes, each made of `rho` parents drawn at random without repetition.

    Every gene comes from one of the rho, all equally likely; with rho = 1 a genome is a copy of one
    parent.
    """
    num_parents, num_genes = parents.shape
    order = rng.permuted(np.tile(np.arange(num_parents), (count, 1)), axis=1)
    donors = np.take_along_axis(order, rng.integers(rho, size=(count, num_genes)), axis=1)
    return np.take_along_axis(parents, donors, axis=0)
