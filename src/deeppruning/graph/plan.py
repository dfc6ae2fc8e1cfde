"""The plan: what one run on labels boils down to, so that cutting is slicing and pricing is arithmetic.

A genome is a row of bits. Along every dimension of every parameter that is cut lies a *strip*: for each
position the gene that decides it, or -1 where it always stays. Equal strips are kept once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.prices import Price
from deeppruning.graph.repair import FilterRepair
from deeppruning.graph.tally import Tally

if TYPE_CHECKING:
    from deeppruning.graph.depth.branches import Emptied, Forms
    from deeppruning.graph.depth.find import Depth
    from deeppruning.graph.depth.hearing import Hearing

Bits = NDArray[np.bool_]
Genes = NDArray[np.int64]  # one gene a position (or an atom), -1 for what always stays


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
    strips: tuple[Genes, ...]
    parameters: dict[str, tuple[tuple[int, int], ...]]  # parameter -> ((dimension, strip), ...)
    aliases: dict[str, str]  # other names of shared parameters -> the name used here
    shapes: dict[str, tuple[int, ...]]  # of every parameter and buffer
    trainable: frozenset[str]  # the parameters among them, buffers left out
    uses: dict[str, int]  # parameter -> multiply-adds of each of its elements, for the whole batch
    fixed_multiply_adds: int
    channel_multiply_adds: tuple[tuple[int, int], ...]  # (strip, multiply-adds of each of its positions)
    batch: int
    layers: tuple[LayerFilters, ...]
    pieces: tuple[Genes, ...]  # strips of channels that must not become empty
    detached: dict[
        str, tuple[int | None, int]
    ]  # module -> strips of its input (if it has channels) and output
    grouped: dict[str, int]  # weight whose groups go whole -> rows a group
    norms: dict[str, tuple[tuple[int, int], ...]]  # norm layer -> ((dimension, strip), ...)
    min_channels: int
    round_to: int | None  # None: what vector units like
    depth: Depth | None = None  # which sets of filters may go altogether
    hearings: tuple[Hearing, ...] = ()  # where channels may be left that hear nothing of the input
    # What a file of weights holds -> bytes of each element under all its names; the network's own precision,
    # which is not that of the copies a plan is made from.
    stored: dict[str, int] = field(default_factory=dict)

    def recipe(self, genome: Bits) -> Recipe:
        """The cut that a (repaired) genome stands for."""
        extended = np.append(genome, True)  # index -1 reads the last entry: always kept
        forms = self.depth.settle(self.depth.gone(genome)).forms if self.depth else None
        return Recipe(
            kept=tuple(np.flatnonzero(extended[genes]) for genes in self.strips),
            widths=tuple(len(genes) for genes in self.strips),
            parameters=self.parameters,
            aliases=self.aliases,
            detached=self.detached,
            grouped=self.grouped,
            norms=self.norms,
            hollow=tuple(sorted(forms.hollow)) if forms else (),
            answers=dict(forms.answers) if forms else {},
            spread=tuple(sorted(forms.spread)) if forms else (),
        )

    def repair(self, *, limits: bool = False) -> FilterRepair:
        """What keeps every layer and piece alive; with `limits`, as wide as the user asked for, too."""
        return FilterRepair(
            num_genes=self.num_genes,
            layers=[layer.genes for layer in self.layers],
            pieces=self.pieces,
            min_channels=self.min_channels if limits else 1,
            round_to=self.round_to if limits else 1,
        )

    @cached_property
    def _tally(self) -> Tally:
        return Tally(self.num_genes, self.strips)

    def widths(self, population: Bits) -> NDArray[np.float64]:
        """(genomes, strips): how many positions of each strip stay."""
        return self._tally(population)

    @cached_property
    def _prices(self) -> tuple[Price, Price, Price]:
        return (
            self._price(self.uses),
            self._price(dict.fromkeys(self.trainable, 1)),
            self._price(self.stored),
        )

    def _price(self, uses: dict[str, int]) -> Price:
        return Price.of(uses, self.shapes, self.parameters, single=len(self.strips))

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
            unstored = {name: 1 for name in forms.dropped if name in self.trainable}
            total[rows] -= self._price(unstored).total(widths[rows])
            for layer in forms.biased:
                total[rows] += self._filters(layer, population[rows])
        return np.asarray(np.rint(total), dtype=np.int64)

    def size(self, population: Bits) -> NDArray[np.int64]:
        """Bytes of the weights of each (repaired) genome in a file: parameters and buffers."""
        widths = self.widths(population)
        total = self._prices[2].total(widths)
        for rows, forms in self._by_forms(population):
            gone = {name: each for name, each in self.stored.items() if _is_gone(name, forms)}
            total[rows] -= self._price(gone).total(widths[rows])
            for layer in forms.biased:
                total[rows] += self.stored[f"{layer}.weight"] * self._filters(layer, population[rows])
        return np.asarray(np.rint(total), dtype=np.int64)

    def extents(self, layers: Sequence[str], population: Bits) -> NDArray[np.float64]:
        """(genomes, layers, 2): what stays of the first two extents of weights; nothing of layers that go."""
        widths = self.widths(population)
        found = np.empty((len(population), len(layers), 2))
        for place, layer in enumerate(layers):
            weight = self.aliases.get(f"{layer}.weight", f"{layer}.weight")
            cuts = dict(self.parameters.get(weight, ()))
            for dimension in range(2):
                whole = self.shapes[weight][dimension]
                found[:, place, dimension] = widths[:, cuts[dimension]] if dimension in cuts else whole
        for rows, forms in self._by_forms(population):
            gone = np.array([layer in forms.replaced for layer in layers])
            found[rows] *= ~gone[:, None]
        return found

    def _by_forms(self, population: Bits) -> Iterator[tuple[NDArray[np.int64], Forms]]:
        """The genomes that lose the same branches, together, with what stands in for these."""
        if self.depth is None:
            return
        rows: dict[Emptied, list[int]] = {}
        for row, genome in enumerate(population):
            rows.setdefault(self.depth.gone(genome), []).append(row)
        for gone, alike in rows.items():
            if gone:
                yield np.array(alike), self.depth.settle(gone).forms

    def _filters(self, layer: str, population: Bits) -> NDArray[np.float64]:
        """How many filters of a layer stay."""
        for known in self.layers:
            if known.name == layer:
                return Tally(self.num_genes, [known.genes])(population)[:, 0]
        return np.full(len(population), float(self.shapes[f"{layer}.weight"][0]))


def _is_gone(name: str, forms: Forms) -> bool:
    """Whether a parameter or buffer is that of a submodule for which something stands in that has none."""
    module, _, own = name.rpartition(".")
    return module in forms.hollow or (module in forms.answers and own != "bias")
