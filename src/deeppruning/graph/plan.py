"""The plan: the result of one run on labels, so that cutting is slicing and pricing is arithmetic.

Along every dimension of every parameter that can be cut lies a *strip*: the gene that decides each position,
or -1 where the position always stays. Equal strips are stored once.

>>> tally = Tally(3, [np.array([0, 1, -1]), np.array([2, 2])])
>>> tally(np.array([[True, False, True]])).tolist()
[[2.0, 2.0]]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.depth import Depth, Emptied, Forms
from deeppruning.graph.paths import InputPaths


class Tally:
    """Counts the positions of each strip that a whole population keeps.

    Neighbouring genes with equal counts in every strip (usually the filters of one layer) are summed first,
    which leaves a small matrix product however wide the layers are.
    """

    def __init__(self, num_genes: int, strips: Sequence[Genes]) -> None:
        counts = np.zeros((num_genes, len(strips)), dtype=np.float32)
        self.always = np.zeros(len(strips))
        for column, genes in enumerate(strips):
            free = genes[genes >= 0]
            np.add.at(counts[:, column], free, 1.0)
            self.always[column] = len(genes) - len(free)
        changes = (counts[1:] != counts[:-1]).any(axis=1)
        self.starts = np.concatenate([[0], np.flatnonzero(changes) + 1])[:num_genes]
        self.weights = counts[self.starts].astype(np.float64)

    def __call__(self, population: Bits) -> NDArray[np.float64]:
        """(genomes, strips): the positions that stay, as exact sums of integers."""
        if not len(self.starts):
            return np.tile(self.always, (len(population), 1))
        sums = np.add.reduceat(population, self.starts, axis=1, dtype=np.int32)
        return np.asarray(sums @ self.weights + self.always)


@dataclass(frozen=True)
class Price:
    """A sum over parameters of weight x product of widths, with equal products added up beforehand."""

    constant: float
    factors: NDArray[np.int64]  # (terms, most strips per parameter), padded by a strip of width 1
    weights: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        uses: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
        cuts: Mapping[str, Sequence[tuple[int, int]]],
        *,
        single: int,
    ) -> Price:
        """The price of `uses` of each element of some parameters; `single` is the strip of width 1."""
        constant = 0.0
        terms: dict[tuple[int, ...], float] = {}
        for name, count in uses.items():
            cut = cuts.get(name, ())
            rest = float(count)
            for dimension, extent in enumerate(shapes[name]):
                if all(dimension != other for other, _ in cut):
                    rest *= extent
            if cut:
                key = tuple(sorted(strip for _, strip in cut))
                terms[key] = terms.get(key, 0.0) + rest
            else:
                constant += rest
        longest = max((len(key) for key in terms), default=1)
        factors = np.array([key + (single,) * (longest - len(key)) for key in terms], dtype=np.int64)
        return cls(constant, factors.reshape(len(terms), longest), np.array(list(terms.values())))

    def total(self, widths: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum for each row of widths."""
        padded = np.hstack([widths, np.ones((len(widths), 1))])
        products = padded[:, self.factors[:, 0]]
        for column in self.factors.T[1:]:
            products = products * padded[:, column]
        return np.asarray(products @ self.weights + self.constant)


@dataclass(frozen=True)
class LayerFilters:
    """A convolution or linear layer with the gene of each of its filters."""

    name: str
    kernel: tuple[int, ...]
    genes: Genes
    reasons: tuple[str, ...]  # why filters are frozen, if any are
    repeats: int = 1  # how often its genes repeat in its output: once per group of a transposed convolution
    weight: str = ""  # the parameter that holds the filters, empty if they are computed
    dimension: int = 0  # the dimension of the parameter along which the filters lie

    def rows(self, modules: Mapping[str, nn.Module]) -> Tensor | None:
        """The weights, one row per filter; None where no module and no parameter holds them.

        `modules` are the named modules of the network, or of a copy of full width.
        """
        weight, dimension = _weight(modules, self.weight), self.dimension
        if weight is None:  # computed from other parameters, as by weight norm
            weight = _weight(modules, f"{self.name}.weight")
            dimension = int(getattr(modules.get(self.name), "transposed", False))
        if weight is None or weight.ndim < 2:
            return None
        count = len(self.genes) * self.repeats
        if dimension == 0 and len(weight) == count:
            return weight.flatten(1)
        # Laid out as (inputs, filters per group, ...), with the inputs of all groups one after another.
        groups = weight.chunk(count // weight.shape[1])
        return torch.cat([group.transpose(0, 1) for group in groups]).flatten(1)


def _weight(modules: Mapping[str, nn.Module], name: str) -> Tensor | None:
    """The tensor of a parameter or buffer by its name, if there is one."""
    module, _, attribute = name.rpartition(".")
    value = getattr(modules.get(module), attribute, None) if attribute else None
    return value if isinstance(value, Tensor) else None


@dataclass(frozen=True)
class Plan:
    """Immutable: made once per network, used for thousands of genomes."""

    num_genes: int
    strips: tuple[Genes, ...]
    uncut: Recipe  # keeps everything; says which dimensions of which parameters the strips index
    shapes: dict[str, tuple[int, ...]]  # of every parameter and buffer
    trainable: frozenset[str]  # the parameters among them, without buffers
    uses: dict[str, int]  # parameter -> multiply-adds per element, for the whole batch
    fixed_multiply_adds: int
    channel_multiply_adds: tuple[tuple[int, int], ...]  # (strip, multiply-adds per position)
    batch: int
    layers: tuple[LayerFilters, ...]
    pieces: tuple[Genes, ...]  # strips of channels that must not become empty
    min_channels: int
    round_to: int | None  # None: multiples that suit vector units
    depth: Depth | None = None  # which sets of filters may be removed altogether
    paths: tuple[InputPaths, ...] = ()  # where channels may be left that do not depend on the input
    # What a file of weights holds -> bytes per element under all its names, in the network's own precision,
    # which may differ from that of the copies a plan is made from.
    stored: dict[str, int] = field(default_factory=dict)

    def recipe(self, genome: Bits) -> Recipe:
        """The cut that a (repaired) genome stands for."""
        extended = np.append(genome, True)  # index -1 reads the last entry: always kept
        forms = self.depth.settle(self.depth.gone(genome)).forms if self.depth else Forms()
        return replace(
            self.uncut,
            kept=tuple(np.flatnonzero(extended[genes]) for genes in self.strips),
            hollow=tuple(sorted(forms.hollow)),
            answers=dict(forms.answers),
            spread=tuple(sorted(forms.spread)),
        )

    @cached_property
    def _tally(self) -> Tally:
        """Counts how many positions of each strip a genome keeps."""
        return Tally(self.num_genes, self.strips)

    def widths(self, population: Bits) -> NDArray[np.float64]:
        """(genomes, strips): how many positions of each strip stay."""
        return self._tally(population)

    @cached_property
    def _prices(self) -> tuple[Price, Price, Price]:
        """Prices in FLOPs, parameters and stored bytes."""
        ones = dict.fromkeys(self.trainable, 1)
        return self._price(self.uses), self._price(ones), self._price(self.stored)

    def _price(self, uses: dict[str, int]) -> Price:
        """The price of a genome where each element of a parameter counts this often."""
        return Price.of(uses, self.shapes, self.uncut.parameters, single=len(self.strips))

    def flops(self, population: Bits) -> NDArray[np.int64]:
        """Multiply-adds of each (repaired) genome for one input."""
        widths = self.widths(population)
        total = self._prices[0].total(widths) + self.fixed_multiply_adds
        for strip, each in self.channel_multiply_adds:
            total += widths[:, strip] * each
        for rows, forms in self._by_forms(population):
            unused = {name: self.uses[name] for name in forms.dropped if name in self.uses}
            total[rows] -= self._price(unused).total(widths[rows])
        return np.asarray(np.rint(total / self.batch), dtype=np.int64)

    def params(self, population: Bits) -> NDArray[np.int64]:
        """Parameters of each (repaired) genome."""
        widths = self.widths(population)
        total = self._prices[1].total(widths)
        for rows, forms in self._by_forms(population):
            dropped = {name: 1 for name in forms.dropped if name in self.trainable}
            total[rows] -= self._price(dropped).total(widths[rows])
            for layer in forms.biased:
                total[rows] += self._filters(layer, population[rows])
        return np.asarray(np.rint(total), dtype=np.int64)

    def size(self, population: Bits) -> NDArray[np.int64]:
        """Bytes of the parameters and buffers of each (repaired) genome in a file."""
        widths = self.widths(population)
        total = self._prices[2].total(widths)
        for rows, forms in self._by_forms(population):
            dropped = {name: each for name, each in self.stored.items() if forms.drops(name)}
            total[rows] -= self._price(dropped).total(widths[rows])
            for layer in forms.biased:
                total[rows] += self.stored[f"{layer}.weight"] * self._filters(layer, population[rows])
        return np.asarray(np.rint(total), dtype=np.int64)

    def extents(self, layers: Sequence[str], population: Bits) -> NDArray[np.float64]:
        """(genomes, layers, 2): the first two extents of each thin weight; zero for removed layers."""
        widths = self.widths(population)
        extents = np.empty((len(population), len(layers), 2))
        for place, layer in enumerate(layers):
            weight = self.uncut.aliases.get(f"{layer}.weight", f"{layer}.weight")
            cuts = dict(self.uncut.parameters.get(weight, ()))
            for dimension in range(2):
                full = self.shapes[weight][dimension]
                extents[:, place, dimension] = widths[:, cuts[dimension]] if dimension in cuts else full
        for rows, forms in self._by_forms(population):
            gone = np.array([layer in forms.replaced for layer in layers])
            extents[rows] *= ~gone[:, None]
        return extents

    def _by_forms(self, population: Bits) -> Iterator[tuple[NDArray[np.int64], Forms]]:
        """The rows of genomes that lose the same branches, with the modules that replace these branches."""
        if self.depth is None:
            return
        rows: dict[Emptied, list[int]] = {}
        for row, genome in enumerate(population):
            rows.setdefault(self.depth.gone(genome), []).append(row)
        for gone, alike in rows.items():
            if gone:
                yield np.array(alike), self.depth.settle(gone).forms

    def _filters(self, name: str, population: Bits) -> NDArray[np.float64]:
        """How many filters of a layer stay."""
        for layer in self.layers:
            if layer.name == name:
                return Tally(self.num_genes, [layer.genes])(population)[:, 0]
        return np.full(len(population), float(self.shapes[f"{name}.weight"][0]))
