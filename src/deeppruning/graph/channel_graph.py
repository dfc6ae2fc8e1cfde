"""`ChannelGraph`, the public class: genomes repaired, cut, proven and priced (FLOPs, parameters, bytes)."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.errors import GraphError, InputError
from deeppruning.graph.assemble import GraphOptions
from deeppruning.graph.atoms import Bits
from deeppruning.graph.build import build_best
from deeppruning.graph.calls import as_call, check_not_empty
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.groups import Group, make_groups, render
from deeppruning.graph.proof.verify import Proof, place_of_fault, prove
from deeppruning.graph.repair import repair_for


class ChannelGraph:
    """Which filters of a network can be removed together, how to cut it, and what the result costs.

    >>> from torch import nn, zeros
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    >>> graph = ChannelGraph(net, zeros(1, 3, 8, 8))
    >>> graph.num_genes                       # the second layer is the network's output: it stays
    4
    >>> thin = graph.prune([1, 0, 0, 1])
    >>> thin[0].weight.shape[0], thin[2].weight.shape[1]
    (2, 2)
    >>> graph.flops([1, 0, 0, 1]) == 6 * 6 * 27 * 2 + 4 * 4 * 18 * 2
    True

    Only copies of the network are run; it is never changed. `example_input` is a tensor, a tuple of
    positional or a dict of keyword arguments. Layers can be excluded by name (`exclude`, with wildcards) or
    type. Layers keep filters in multiples of `round_to`; None takes 8 for layers of 16 or more filters and 4
    from 8 on, which suits vector units. Hidden units of linear layers are pruned with `prune_linear`, whole
    heads of attention with `prune_heads`, whole branches with `depth`. Cuts use the weights that the network
    has at the time of the cut.
    """

    def __init__(
        self,
        model: nn.Module,
        example_input: Any,
        *,
        exclude: Sequence[str] = (),
        exclude_types: Sequence[type[nn.Module]] = (),
        min_channels: int = 1,
        round_to: int | None = 1,
        prune_linear: bool = False,
        depth: bool = False,
        prune_heads: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        for name, value in (("min_channels", min_channels), ("round_to", round_to)):
            if name == "round_to" and value is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if isinstance(exclude, str):  # would be read as patterns of one letter each, "*" among them
            raise InputError(f"exclude must be a list of patterns, got {exclude!r}; write [{exclude!r}]")
        self._model = model
        self._args, self._kwargs = as_call(example_input, "example_input")
        check_not_empty((self._args, self._kwargs))
        options = GraphOptions(
            tuple(exclude), tuple(exclude_types), min_channels, round_to, prune_linear, depth, prune_heads
        )
        self._built = build_best(model, self._args, self._kwargs, options)
        self._plan = replace(self._built.plan, stored=_stored(model))
        if not self._plan.layers:
            raise GraphError(
                f"{type(model).__name__} runs no convolution on this input: there are no filters to remove"
            )
        self._follow_plan()

    def _follow_plan(self) -> None:
        """Take groups, repair and prices from the plan."""
        self._repair = repair_for(self._plan)
        self.groups: list[Group] = make_groups(self._plan)

    def rounded(self, round_to: int | None) -> "ChannelGraph":
        """The same graph with filters in other multiples, without running the network again."""
        twin = copy.copy(self)
        twin._plan = replace(self._plan, round_to=round_to)
        twin._follow_plan()
        return twin

    @property
    def num_genes(self) -> int:
        """Bits in a genome."""
        return self._plan.num_genes

    @property
    def notes(self) -> list[str]:
        """What could not be followed, in words."""
        return list(self._built.notes)

    def full_genome(self) -> Bits:
        """The genome of the original network: all bits on."""
        return np.ones(self.num_genes, dtype=np.bool_)

    def repair(self, genome: Any) -> Bits:
        """The genome (or population) as it is used: every layer keeps the filters that it must keep."""
        population, single = self._population(genome)
        repaired = self._repair(population)
        return repaired[0] if single else repaired

    def prune(self, genome: Any, *, verify: bool = False) -> nn.Module:
        """A new, thinner network with the same forward and names. With `verify` the cut is proven first."""
        repaired = self._single_genome(genome)
        if verify:
            proof = self.verify(repaired)
            if not proof.holds:
                raise GraphError(
                    f"the cut does not equal the masked network ({proof.gap}); please report this network"
                )
        return cut(self._model, self._plan.recipe(repaired))

    def recipe(self, genome: Any) -> Recipe:
        """The cut in plain numbers, as it is stored with the weights of a thin network."""
        return self._plan.recipe(self._single_genome(genome))

    def verify(self, genome: Any) -> Proof:
        """Compare the thin network with the full one, with its removed channels held at zero."""
        return prove(self._model, self._built, self._single_genome(genome), self._args, self._kwargs)

    def fault(self, genome: Any) -> str:
        """Why the proof of a cut fails, and at which operation; empty if it holds.

        Also empty where a proof is impossible because outputs are NaN even if nothing is cut.
        """
        repaired = self._single_genome(genome)
        try:
            proof = self.verify(repaired)
            if proof.holds or not self.verify(self.full_genome()).holds:
                return ""
            place = place_of_fault(self._model, self._built, repaired, self._args, self._kwargs)
        except GraphError as error:  # the masked network, or the full one, runs other operations
            return f"its cut cannot be compared with the masked network: {error}"
        return f"its cut does not equal the masked network: {place} differs ({proof.gap})"

    def flops(self, genome: Any) -> Any:
        """Multiply-adds of convolutions and linear layers for one input; an array for a population."""
        return self._priced(genome, self._plan.flops)

    def params(self, genome: Any) -> Any:
        """Parameters; an array for a population."""
        return self._priced(genome, self._plan.params)

    def size(self, genome: Any) -> Any:
        """Bytes of parameters and buffers in a file; an array for a population."""
        return self._priced(genome, self._plan.size)

    def _priced(self, genome: Any, price: Callable[[Bits], NDArray[np.int64]]) -> Any:
        """A price for a genome, or an array of prices for a population."""
        population, single = self._population(genome)
        counts = price(self._repair(population))
        return int(counts[0]) if single else counts

    def widths(self, genome: Any) -> dict[str, tuple[int, int]]:
        """Layer -> (filters kept, filters of the original); 0 kept for a layer removed with its branch."""
        repaired = self._single_genome(genome)
        extended, recipe = np.append(repaired, True), self._plan.recipe(repaired)
        gone = {*recipe.hollow, *recipe.answers}
        return {
            name: (0 if name in gone else int(extended[np.array(genes)].sum()), len(genes))
            for name, genes in self.layer_genes().items()
        }

    def extents(self, layers: Sequence[str], population: Any) -> NDArray[np.float64]:
        """(genomes, layers, 2): filters and input channels per group of thin weights; 0 for removed layers.

        In the order of the weight's dimensions: the other way round for transposed convolutions.
        """
        genomes, _ = self._population(population)
        return self._plan.extents(layers, self._repair(genomes))

    def layer_genes(self) -> dict[str, list[int]]:
        """Layer -> the gene of each of its filters, -1 for one that always stays."""
        return {layer.name: np.tile(layer.genes, layer.repeats).tolist() for layer in self._plan.layers}

    def filters(self, network: nn.Module) -> dict[str, Tensor]:
        """Layer -> its weights in the network or a copy of full width, one row for each of `layer_genes`.

        Layers with weights that no module and no parameter holds are left out.
        """
        modules = dict(network.named_modules())
        rows = {layer.name: layer.rows(modules) for layer in self._plan.layers}
        return {name: weights for name, weights in rows.items() if weights is not None}

    def parameter_genes(self) -> dict[str, dict[int, NDArray[np.int64]]]:
        """Parameter or buffer -> dimension -> the gene at each position, -1 for one that always stays."""
        return {
            name: {dimension: self._plan.strips[strip] for dimension, strip in cuts}
            for name, cuts in self._plan.uncut.parameters.items()
        }

    def __str__(self) -> str:
        full = self.full_genome()
        name = type(self._model).__name__
        return render(name, self._plan, self.groups, self.flops(full), self.params(full), self.notes)

    def __repr__(self) -> str:
        return f"ChannelGraph({type(self._model).__name__}, {self.num_genes} genes)"

    def _single_genome(self, genome: Any) -> Bits:
        """The genome as bits; a population is refused."""
        population, single = self._population(genome)
        if not single:
            raise InputError(f"one genome is needed here, got a population of shape {population.shape}")
        return np.asarray(self._repair(population)[0])

    def _population(self, genome: Any) -> tuple[Bits, bool]:
        """The genome or population as a 2-D array of bits, and whether it was a single genome."""
        array: NDArray[Any] = np.asarray(genome.detach().cpu() if isinstance(genome, Tensor) else genome)
        if array.ndim not in (1, 2) or array.shape[-1] != self.num_genes:
            raise InputError(
                f"a genome of this network has {self.num_genes} bits (a population: one row each), "
                f"got shape {array.shape}"
            )
        if array.dtype != np.bool_:
            numeric = np.issubdtype(array.dtype, np.number)
            if not numeric or not np.isin(array, (0, 1)).all():
                raise InputError(f"a genome holds only 0 and 1 (or booleans), got {array.dtype} values")
        return np.atleast_2d(array).astype(np.bool_), array.ndim == 1


def _stored(model: nn.Module) -> dict[str, int]:
    """Tensors in a file of weights by their first names -> bytes per element, counted once for each name."""
    first: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        first.setdefault(id(tensor), name)
    stored: dict[str, int] = {}
    for tensor in model.state_dict(keep_vars=True).values():
        if id(tensor) in first:
            name = first[id(tensor)]
            stored[name] = stored.get(name, 0) + tensor.element_size()
    return stored
