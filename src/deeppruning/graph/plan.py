"""The plan: what one run on labels boils down to, so that cutting is slicing and pricing is arithmetic.

A genome is a row of bits. Every dimension of every parameter that is cut is an `axis`: for each of
its positions the gene that decides it, or -1 where it always stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.recipe import Recipe
from deeppruning.graph.tally import Tally

Bits = NDArray[np.bool_]
Genes = NDArray[np.int64]  # one gene a position, -1 for a position that always stays


@dataclass(frozen=True)
class LayerFilters:
    """A convolution with the gene of each of its filters."""

    name: str
    kernel: tuple[int, ...]
    genes: Genes
    reasons: tuple[str, ...]  # why filters of it are frozen, where any are
    repeats: int = 1  # how often its genes come in its output: in each group of a transposed convolution
    weight: str = ""  # the parameter that holds the filters; none where they are computed
    dimension: int = 0  # along which they lie in it


@dataclass(frozen=True)
class Plan:
    """Immutable: made once for a network, used for thousands of genomes."""

    num_genes: int
    axes: tuple[Genes, ...]
    parameters: dict[str, tuple[tuple[int, int], ...]]  # parameter -> ((dimension, axis), ...)
    aliases: dict[str, str]  # other names of shared parameters -> the name used here
    shapes: dict[str, tuple[int, ...]]  # of every parameter and buffer
    trainable: frozenset[str]  # the parameters among them, buffers left out
    uses: dict[str, int]  # parameter -> multiply-adds of each of its elements, for the whole batch
    fixed_multiply_adds: int
    batch: int
    layers: tuple[LayerFilters, ...]
    pieces: tuple[Genes, ...]  # runs of channels that must not become empty
    detached: dict[str, tuple[int | None, int]]  # module -> axes of its input and output
    grouped: dict[str, int]  # weight whose groups go whole -> rows a group
    norms: dict[str, tuple[tuple[int, int], ...]]  # norm layer -> ((dimension, axis), ...)
    min_channels: int
    round_to: int

    def recipe(self, genome: Bits) -> Recipe:
        """The cut that a (repaired) genome stands for."""
        extended = np.append(genome, True)  # index -1 reads the last entry: always kept
        return Recipe(
            kept=tuple(np.flatnonzero(extended[genes]) for genes in self.axes),
            widths=tuple(len(genes) for genes in self.axes),
            parameters=self.parameters,
            aliases=self.aliases,
            detached=self.detached,
            grouped=self.grouped,
            norms=self.norms,
        )

    @cached_property
    def _tally(self) -> Tally:
        return Tally(self.num_genes, self.axes)

    def widths(self, population: Bits) -> NDArray[np.float64]:
        """(genomes, axes): how many positions of each axis stay."""
        return self._tally(population)

    @cached_property
    def _prices(self) -> tuple[_Price, _Price]:
        return _Price.of(self, self.uses), _Price.of(self, dict.fromkeys(self.trainable, 1))

    def flops(self, population: Bits) -> NDArray[np.int64]:
        """Multiply-adds of each (repaired) genome for one input."""
        total = self._prices[0].total(self.widths(population)) + self.fixed_multiply_adds
        return np.asarray(np.rint(total / self.batch), dtype=np.int64)

    def params(self, population: Bits) -> NDArray[np.int64]:
        """Parameters of each (repaired) genome."""
        return np.asarray(np.rint(self._prices[1].total(self.widths(population))), dtype=np.int64)


@dataclass(frozen=True)
class _Price:
    """A sum over parameters of weight x product of widths, with equal products added up beforehand."""

    constant: float
    factors: NDArray[np.int64]  # (terms, most axes a parameter has); padded by the axis of width 1
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, plan: Plan, uses: dict[str, int]) -> _Price:
        constant = 0.0
        terms: dict[tuple[int, ...], float] = {}
        for name, count in uses.items():
            cut = plan.parameters.get(name, ())
            rest = float(count)
            for dimension, extent in enumerate(plan.shapes[name]):
                if all(dimension != other for other, _ in cut):
                    rest *= extent
            if cut:
                key = tuple(sorted(axis for _, axis in cut))
                terms[key] = terms.get(key, 0.0) + rest
            else:
                constant += rest
        longest = max((len(key) for key in terms), default=1)
        one = len(plan.axes)
        factors = np.array([key + (one,) * (longest - len(key)) for key in terms], dtype=np.int64)
        return cls(constant, factors.reshape(len(terms), longest), np.array(list(terms.values())))

    def total(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        padded = np.hstack([widths, np.ones((len(widths), 1))])
        products = padded[:, self.factors[:, 0]]
        for column in self.factors.T[1:]:
            products = products * padded[:, column]
        return np.asarray(products @ self.weights + self.constant)
