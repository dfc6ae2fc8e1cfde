"""Small problems for the guided strategy, without a network: chains of layers priced as convolutions are."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deeppruning.evolution.space import Space
from deeppruning.genome import Population


def chained(
    sizes: Sequence[int],
    *,
    units: Sequence[int] = (),
    least: int = 1,
    multiple: int = 1,
    orders: int = 2,
    seed: int = 0,
) -> Space:
    """Layers in a row: each costs its width times that of the layer before; units may go altogether.

    All others keep at least `least` filters, the lowest gene coming back first, as in a network.
    """
    ends = np.cumsum([0, *sizes])
    groups = [np.arange(low, high) for low, high in pairwise(ends)]
    rng = np.random.default_rng(seed)
    num_genes = int(ends[-1])
    return Space(
        num_genes,
        groups,
        scores={name: rng.permutation(num_genes) + 1.0 for name in ("first", "second", "third")[:orders]},
        price=chain_price(groups),
        repair=keeping(groups, [g for g in range(len(sizes)) if g not in units], least),
        units=units,
        multiple=multiple,
        least=least,
    )


def chain_price(groups: Sequence[NDArray[np.int64]]) -> Callable[[Population], NDArray[np.float64]]:
    """3 filters go in, 10 come out; what passes a unit by costs as much as it is wide."""

    def price(population: Population) -> NDArray[np.float64]:
        widths = np.stack([population[:, genes].sum(1) for genes in groups], axis=1).astype(np.float64)
        before = np.concatenate([np.full((len(widths), 1), 3.0), widths], axis=1)
        after = np.concatenate([widths, np.full((len(widths), 1), 10.0)], axis=1)
        return np.asarray((before * after).sum(1) + widths.sum(1))

    return price


def keeping(
    groups: Sequence[NDArray[np.int64]], needed: Sequence[int], least: int
) -> Callable[[Population], Population]:
    """A repair that gives these groups back as many filters as they must have."""

    def repair(population: Population) -> Population:
        repaired = population.copy()
        for group in needed:
            bits = repaired[:, groups[group]]
            missing = np.maximum(min(least, bits.shape[1]) - bits.sum(1), 0)
            repaired[:, groups[group]] = bits | (np.cumsum(~bits, axis=1) <= missing[:, None])
        return repaired

    return repair
