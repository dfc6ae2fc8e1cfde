"""Paths from inputs to outputs: whether the outputs of a thin network still depend on its inputs, by channel.

A channel depends on an input where a path leads to it through channels that stay. Padding depends on nothing:
where everything that feeds a padded sum is removed except its shortcut, only padding may feed some channels.

Every channel of every activation is a *node*, computed from its *source* nodes. Node 0 depends on no input,
the next ones are the network's inputs. Dependence is computed for whole populations at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from deeppruning.graph.atoms import Atoms, Bits, Genes, positions_of
from deeppruning.graph.payloads import Channels
from deeppruning.graph.rules.operations import FACTORIES, LIKENESSES, MOVES, PRODUCTS, VIEWS
from deeppruning.graph.trace.follow import Follower, by_name, execute, execute_blank, tensors_in
from deeppruning.graph.trace.tracer import Record

Nodes = NDArray[np.int64]
NO_INPUT = 0  # the node that depends on no input
_NONE: Nodes = np.zeros(0, dtype=np.int64)
ROWS = 64  # genomes at a time: a wide network has tens of thousands of nodes


@dataclass(frozen=True)
class InputPaths:
    """The paths of one run."""

    steps: Sequence[tuple[Nodes, Genes]]  # (channels, most sources) and the gene of each channel
    inputs: int
    outputs: Sequence[Nodes]
    num_genes: int

    def __call__(self, population: Bits) -> Bits:
        """For each genome: whether every output depends on every input it depends on in the full network."""
        chunks = [population[start : start + ROWS] for start in range(0, len(population), ROWS)]
        connected = [(self._dependence(chunk) | ~self._full).all(axis=(1, 2)) for chunk in chunks]
        return np.concatenate(connected) if connected else np.zeros(0, dtype=np.bool_)

    @cached_property
    def _full(self) -> Bits:
        """Which output depends on which input in the full network."""
        return self._dependence(np.ones((1, self.num_genes), dtype=np.bool_))

    def same_as(self, other: "InputPaths") -> bool:
        """Whether the paths are those of another run, as both modes usually have the same."""
        pairs = zip(self.steps, other.steps, strict=False)
        alike = all(np.array_equal(a, b) for own, others in pairs for a, b in zip(own, others, strict=True))
        ends = zip(self.outputs, other.outputs, strict=False)
        counts = [(each.inputs, len(each.steps), len(each.outputs)) for each in (self, other)]
        return counts[0] == counts[1] and alike and all(np.array_equal(*pair) for pair in ends)

    def always(self, layers: Sequence[Genes]) -> bool:
        """Whether the outputs depend on all inputs, whatever is removed, while every layer keeps a filter.

        A channel that stays certainly depends on what one of its sources does that stays whenever it does. A
        layer certainly depends on what all filters of another layer do if it reads them: one of them stays.
        """
        genes_of = np.concatenate([np.full(1 + self.inputs, -1), *(genes for _, genes in self.steps)])
        owners: dict[int, list[Genes]] = {}
        for genes in layers:
            owners.setdefault(int(genes[0]), []).append(np.unique(genes))
        certain = np.zeros((len(genes_of), self.inputs), dtype=np.bool_)
        certain[1 : 1 + self.inputs] = np.eye(self.inputs, dtype=np.bool_)
        start = 1 + self.inputs
        for sources, genes in self.steps:
            stay = (genes_of[sources] < 0) | (genes_of[sources] == genes[:, None])
            made = (certain[sources] & stay[:, :, None]).any(axis=1)
            if len(genes) == 1:
                for number in range(self.inputs):
                    read = genes_of[sources[0][certain[sources[0], number]]]
                    whole = (own for gene in np.unique(read).tolist() for own in owners.get(gene, ()))
                    made[0, number] |= any(np.isin(own, read).all() for own in whole)
            certain[start : start + len(genes)] = made
            start += len(genes)
        reached = np.stack([certain[nodes].any(axis=0) for nodes in self.outputs], axis=1)
        return bool((reached | ~self._full[0]).all())

    def _dependence(self, population: Bits) -> Bits:
        """(genomes, inputs, outputs): which output depends on which input."""
        dependence = np.zeros((len(population), self.inputs, len(self.outputs)), dtype=np.bool_)
        stays = np.vstack([population.T, np.ones((1, len(population)), dtype=np.bool_)])  # -1: the last row
        count = 1 + self.inputs
        values = np.zeros((count + sum(len(genes) for _, genes in self.steps), len(population)), np.bool_)
        for number in range(self.inputs):
            values[:count] = False
            values[1 + number] = True
            start = count
            for sources, genes in self.steps:
                stop = start + len(genes)
                values[start:stop] = values[sources].any(axis=1) & stays[genes]
                start = stop
            for output, nodes in enumerate(self.outputs):
                dependence[:, number, output] = values[nodes].any(axis=0)
        return dependence


@dataclass(frozen=True)
class _TensorNodes:
    """The nodes of a tensor: one per channel if it has channels, else one for all of it."""

    nodes: Nodes
    atoms: Atoms | None = None


class PathRun(Follower):
    """Runs a network and records the paths through it, in the order of the trace."""

    def __init__(
        self,
        model: nn.Module,
        detached: frozenset[str],
        records: Sequence[Record],
        genes: Genes,
        *,
        by_shapes: bool = False,
    ) -> None:
        super().__init__(model, detached)
        self.execute = execute_blank if by_shapes else execute
        self.records = records
        self.genes = genes  # of each atom
        self.position = 0
        self.steps: list[tuple[Nodes, Genes]] = []
        self.gene_of = np.array([-1])  # of each node
        self.unions: dict[bytes, Nodes] = {}
        self.nodes_of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # tensor -> its nodes

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> InputPaths:
        """Run the network on these inputs and return its paths."""
        inputs = tensors_in((args, dict(kwargs)))
        for number, tensor in enumerate(inputs):
            self.nodes_of[tensor] = _TensorNodes(np.array([1 + number]))
        self.gene_of = np.full(1 + len(inputs), -1)
        outputs = [self._nodes(tensor).nodes for tensor in tensors_in(self.run(model, args, kwargs))]
        return InputPaths(self.steps, len(inputs), outputs, int(self.genes.max(initial=-1)) + 1)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and record what its channels are computed from."""
        read = [self._nodes(tensor) for tensor in tensors_in((args, kwargs))]  # before it writes in place
        result = self.execute(func, args, kwargs)
        outputs = tensors_in(result)
        if outputs:
            record = self._next_record()
            groups = by_name(func, args, kwargs)["groups"] if record.name == "convolution" else 1
            for tensor, made in zip(outputs, self._made(record, read, groups), strict=True):
                self.nodes_of[tensor] = made
                base = tensor._base if func._schema.is_mutable else None
                around = None if base is None else self._nodes(base)
                if around is not None and around.atoms is None:  # a part of a blank tensor was written
                    union = self._any(np.concatenate([around.nodes, made.nodes]))
                    self.nodes_of[base] = _TensorNodes(union) if made.atoms is None else made
        return result

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A wrapped module counts as one operation: which channels it brings where is tried out."""
        record, read = self._next_record(), self._nodes(inputs[0])
        reached = self._reached(module, inputs[0], output) if read.atoms is not None else None
        fresh = output.clone()
        if reached is None:
            self.nodes_of[fresh] = self._made(record, [read], 1)[0]
            return fresh
        payload = record.payloads[0]
        assert isinstance(payload, Channels)
        nodes = self._add(np.where(reached, read.nodes, NO_INPUT), self.genes[payload.atoms])
        self.nodes_of[fresh] = _TensorNodes(nodes, payload.atoms)
        return fresh

    def _next_record(self) -> Record:
        """The record of the traced run for the operation that runs now."""
        self.position += 1
        return self.records[self.position - 1]

    def _nodes(self, tensor: Tensor) -> _TensorNodes:
        """The nodes of a tensor."""
        nodes = self.nodes_of.get(tensor, None)  # type: ignore[no-untyped-call]
        return nodes if isinstance(nodes, _TensorNodes) else _TensorNodes(np.array([NO_INPUT]))

    def _made(self, record: Record, read: list[_TensorNodes], groups: int) -> list[_TensorNodes]:
        """The nodes of an operation's outputs."""
        if record.name in FACTORIES | LIKENESSES:
            read = []
        carriers = [(each.nodes, each.atoms) for each in read if each.atoms is not None]
        others = self._any(np.concatenate([_NONE, *(each.nodes for each in read if each.atoms is None)]))
        nodes = np.concatenate([_NONE, *(own for own, _ in carriers)])
        incoming = np.concatenate([_NONE, *(atoms for _, atoms in carriers)])
        atoms_made = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
        places = iter(positions_of(atoms_made, incoming))
        made: list[_TensorNodes] = []
        for payload in record.payloads:
            if not isinstance(payload, Channels):
                made.append(_TensorNodes(self._any(np.concatenate([nodes, others]))))
                continue
            place = next(places)
            if record.name in PRODUCTS or (record.name not in MOVES and (place < 0).all()):
                whole = groups == 1 or not len(nodes) or len(nodes) % groups != 0
                blocks = np.concatenate([nodes, others])[None] if whole else nodes.reshape(groups, -1)
                unions = np.concatenate([self._any(block) for block in blocks])
                sources = np.repeat(unions, len(place) // len(unions))[:, None]
            else:
                aligned = [own for own, _ in carriers if len(own) == len(place)]
                if record.name in VIEWS and not aligned:
                    own, genes = self.genes[payload.atoms], self.genes[incoming]  # tied ones share a label
                    by_gene = {gene: self._any(nodes[genes == gene]) for gene in np.unique(own).tolist()}
                    aligned = [np.concatenate([by_gene[gene] for gene in own.tolist()])]
                elif record.name in MOVES or not aligned:
                    aligned = [np.append(nodes, others)[place]]  # -1: what is no channel, such as padding
                    others = np.array([NO_INPUT])
                sources = np.stack([*aligned, np.repeat(others, len(place))], axis=1)
            made.append(_TensorNodes(self._add(sources, self.genes[payload.atoms]), payload.atoms))
        return made

    def _any(self, nodes: Nodes) -> Nodes:
        """A node that depends on whatever any of these depends on."""
        distinct = np.unique(np.asarray(nodes))
        distinct = distinct[distinct != NO_INPUT]
        if len(distinct) < 2:
            return distinct if len(distinct) else np.array([NO_INPUT])
        key = distinct.tobytes()
        if key not in self.unions:
            self.unions[key] = self._add(distinct[None], np.array([-1]))
        return self.unions[key]

    def _add(self, sources: Nodes, genes: Genes) -> Nodes:
        """New nodes, a row of sources each; channels that are passed on unchanged need none."""
        sources = sources[:, (sources != NO_INPUT).any(axis=0)]
        if not sources.shape[1]:
            return np.full(len(genes), NO_INPUT)
        first = sources[:, 0]
        if sources.shape[1] == 1 and ((first == NO_INPUT) | (self.gene_of[first] == genes)).all():
            return first
        self.steps.append((sources, genes))
        self.gene_of = np.concatenate([self.gene_of, genes])
        return np.arange(len(self.gene_of) - len(genes), len(self.gene_of))

    def _reached(self, module: nn.Module, x: Tensor, output: Tensor) -> Bits | None:
        """(outputs, inputs): which channel of a module reaches which; None where it cannot be found out.

        NaN stays NaN whatever is done with it, so each input channel in turn is set to NaN.
        """
        probe = x[:1].repeat_interleave(x.shape[1], 0).detach()
        each = torch.arange(x.shape[1], device=x.device)
        self.inside_detached += 1  # modules inside are not followed
        try:
            probe[each, each] = float("nan")
            result = module.forward(probe)
        except Exception:
            return None
        finally:
            self.inside_detached -= 1
        if not isinstance(result, Tensor) or result.shape != (x.shape[1], *output.shape[1:]):
            return None
        return np.asarray(result.isnan().flatten(2).any(dim=2).T.cpu().numpy())
