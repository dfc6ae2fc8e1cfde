"""Who hears the input: whether the outputs of a thin network still depend on what goes in, by channel.

A channel hears the input where a path leads to it through channels that stay. Padding hears nothing: where
all that feeds a padded sum is gone but its shortcut, some channels are left that only padding feeds.

Every channel of every activation is a *node*, whose *sources* are the nodes it is computed from. Node 0 hears
nothing, the next ones are the network's inputs. Values are worked out for whole populations at once.
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

from deeppruning.graph.labels.atoms import Atoms
from deeppruning.graph.labels.payloads import Channels
from deeppruning.graph.plan import Bits, Genes
from deeppruning.graph.proof.moves import positions_of
from deeppruning.graph.rules.operations import FACTORIES, LIKENESSES, MOVES, VIEWS
from deeppruning.graph.trace.follow import Follower, tensors_in
from deeppruning.graph.trace.operation import by_name, execute
from deeppruning.graph.trace.tracer import Record

Nodes = NDArray[np.int64]
DEAF = 0
LAYERS = ("convolution", "mm", "addmm", "bmm", "baddbmm", "linear")
_NONE: Nodes = np.zeros(0, dtype=np.int64)
ROWS = 64  # genomes at a time: a wide network has tens of thousands of nodes


@dataclass(frozen=True)
class Hearing:
    """The paths of one run."""

    steps: Sequence[tuple[Nodes, Genes]]  # (channels, most sources) and the gene of each channel
    inputs: int
    outputs: Sequence[Nodes]
    num_genes: int

    def __call__(self, population: Bits) -> Bits:
        """For each genome: whether every output depends on every input it depends on in the full network."""
        chunks = [population[start : start + ROWS] for start in range(0, len(population), ROWS)]
        held = [(self._heard(chunk) | ~self._usual).all(axis=(1, 2)) for chunk in chunks]
        return np.concatenate(held) if held else np.zeros(0, dtype=np.bool_)

    @cached_property
    def _usual(self) -> Bits:
        return self._heard(np.ones((1, self.num_genes), dtype=np.bool_))

    def same_as(self, other: "Hearing") -> bool:
        """Whether the paths are those of another run, as they are in both modes as a rule."""
        pairs = zip(self.steps, other.steps, strict=False)
        alike = all(np.array_equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))
        ends = zip(self.outputs, other.outputs, strict=False)
        counts = [(each.inputs, len(each.steps), len(each.outputs)) for each in (self, other)]
        return counts[0] == counts[1] and alike and all(np.array_equal(*pair) for pair in ends)

    def certain(self, layers: Sequence[Genes]) -> bool:
        """Whether the outputs hear all they should, whatever goes, as long as every layer keeps a filter.

        A channel surely hears, if it stays, what a channel surely hears that stays whenever it does. A layer
        surely hears if it reads all filters of another one, and they surely hear: one of them stays.
        """
        genes_of = np.concatenate([np.full(1 + self.inputs, -1), *(genes for _, genes in self.steps)])
        owners: dict[int, list[Genes]] = {}
        for genes in layers:
            owners.setdefault(int(genes[0]), []).append(np.unique(genes))
        sure = np.zeros((len(genes_of), self.inputs), dtype=np.bool_)
        sure[1 : 1 + self.inputs] = np.eye(self.inputs, dtype=np.bool_)
        start = 1 + self.inputs
        for sources, genes in self.steps:
            stay = (genes_of[sources] < 0) | (genes_of[sources] == genes[:, None])
            made = (sure[sources] & stay[:, :, None]).any(axis=1)
            if len(genes) == 1:
                for number in range(self.inputs):
                    read = genes_of[sources[0][sure[sources[0], number]]]
                    whole = (own for gene in np.unique(read).tolist() for own in owners.get(gene, ()))
                    made[0, number] |= any(np.isin(own, read).all() for own in whole)
            sure[start : start + len(genes)] = made
            start += len(genes)
        heard = np.stack([sure[nodes].any(axis=0) for nodes in self.outputs], axis=1)
        return bool((heard | ~self._usual[0]).all())

    def _heard(self, population: Bits) -> Bits:
        """(genomes, inputs, outputs): which output depends on which input."""
        found = np.zeros((len(population), self.inputs, len(self.outputs)), dtype=np.bool_)
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
                found[:, number, output] = values[nodes].any(axis=0)
        return found


@dataclass(frozen=True)
class _Voice:
    """The nodes of a tensor: one for each channel if it has channels, else one for all of it."""

    nodes: Nodes
    atoms: Atoms | None = None


class HearingRun(Follower):
    """Runs a network and writes down the paths through it, in the order of the trace."""

    def __init__(
        self, model: nn.Module, detached: frozenset[str], records: Sequence[Record], genes: Genes
    ) -> None:
        super().__init__(model, detached)
        self.records = records
        self.genes = genes  # of each atom
        self.position = 0
        self.steps: list[tuple[Nodes, Genes]] = []
        self.gene_of = np.array([-1])  # of each node
        self.unions: dict[bytes, Nodes] = {}
        self.voices: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hearing:
        """Run the network on these inputs; the paths are complete when it returns."""
        inputs = tensors_in((args, dict(kwargs)))
        for number, tensor in enumerate(inputs):
            self.voices[tensor] = _Voice(np.array([1 + number]))
        self.gene_of = np.full(1 + len(inputs), -1)
        outputs = [self._voice(tensor).nodes for tensor in tensors_in(self.run(model, args, kwargs))]
        return Hearing(self.steps, len(inputs), outputs, int(self.genes.max(initial=-1)) + 1)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and note what its channels hear."""
        heard = [self._voice(tensor) for tensor in tensors_in((args, kwargs))]  # before it writes in place
        result = execute(func, args, kwargs)
        outputs = tensors_in(result)
        if outputs:
            record = self._due()
            groups = by_name(func, args, kwargs)["groups"] if record.name == "convolution" else 1
            for tensor, voice in zip(outputs, self._made(record, heard, groups), strict=True):
                self.voices[tensor] = voice
                base = tensor._base if func._schema.is_mutable else None
                around = None if base is None else self._voice(base)
                if around is not None and around.atoms is None:  # a part of a blank tensor was written
                    union = self._any(np.concatenate([around.nodes, voice.nodes]))
                    self.voices[base] = _Voice(union) if voice.atoms is None else voice
        return result

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A wrapped module counts as one operation: which channels it brings where is tried out."""
        record, heard = self._due(), self._voice(inputs[0])
        reached = self._reached(module, inputs[0], output) if heard.atoms is not None else None
        fresh = output.clone()
        if reached is None:
            self.voices[fresh] = self._made(record, [heard], 1)[0]
            return fresh
        sources = np.where(reached, heard.nodes, DEAF)
        atoms = _atoms(record.payloads[0])
        self.voices[fresh] = _Voice(self._add(sources, self.genes[atoms]), atoms)
        return fresh

    def _due(self) -> Record:
        self.position += 1
        return self.records[self.position - 1]

    def _voice(self, tensor: Tensor) -> _Voice:
        found = self.voices.get(tensor, None)  # type: ignore[no-untyped-call]
        return found if isinstance(found, _Voice) else _Voice(np.array([DEAF]))

    def _made(self, record: Record, heard: list[_Voice], groups: int) -> list[_Voice]:
        """What the outputs of an operation hear."""
        if record.name in FACTORIES | LIKENESSES:
            heard = []
        carriers = [(voice.nodes, voice.atoms) for voice in heard if voice.atoms is not None]
        others = self._any(np.concatenate([_NONE, *(voice.nodes for voice in heard if voice.atoms is None)]))
        nodes = np.concatenate([_NONE, *(own for own, _ in carriers)])
        known = np.concatenate([_NONE, *(atoms for _, atoms in carriers)])
        made = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
        places = iter(positions_of(made, known))
        voices: list[_Voice] = []
        for payload in record.payloads:
            if not isinstance(payload, Channels):
                voices.append(_Voice(self._any(np.concatenate([nodes, others]))))
                continue
            place = next(places)
            if record.name in LAYERS or (record.name not in MOVES and (place < 0).all()):
                whole = groups == 1 or not len(nodes) or len(nodes) % groups != 0
                blocks = np.concatenate([nodes, others])[None] if whole else nodes.reshape(groups, -1)
                ears = np.concatenate([self._any(block) for block in blocks])
                sources = np.repeat(ears, len(place) // len(ears))[:, None]
            else:
                aligned = [own for own, _ in carriers if len(own) == len(place)]
                if record.name in VIEWS and not aligned:
                    own, incoming = self.genes[payload.atoms], self.genes[known]  # tied ones go by one label
                    by_gene = {gene: self._any(nodes[incoming == gene]) for gene in np.unique(own).tolist()}
                    aligned = [np.concatenate([by_gene[gene] for gene in own.tolist()])]
                elif record.name in MOVES or not aligned:
                    aligned = [np.append(nodes, others)[place]]  # -1: what is no channel, such as padding
                    others = np.array([DEAF])
                sources = np.stack([*aligned, np.repeat(others, len(place))], axis=1)
            voices.append(_Voice(self._add(sources, self.genes[payload.atoms]), payload.atoms))
        return voices

    def _any(self, nodes: Nodes) -> Nodes:
        """A node that hears what any of these hears."""
        distinct = np.unique(np.asarray(nodes))
        distinct = distinct[distinct != DEAF]
        if len(distinct) < 2:
            return distinct if len(distinct) else np.array([DEAF])
        key = distinct.tobytes()
        if key not in self.unions:
            self.unions[key] = self._add(distinct[None], np.array([-1]))
        return self.unions[key]

    def _add(self, sources: Nodes, genes: Genes) -> Nodes:
        """New nodes, a row of sources for each; none are needed for channels that are handed on."""
        sources = sources[:, (sources != DEAF).any(axis=0)]
        if not sources.shape[1]:
            return np.full(len(genes), DEAF)
        first = sources[:, 0]
        if sources.shape[1] == 1 and ((first == DEAF) | (self.gene_of[first] == genes)).all():
            return first
        self.steps.append((sources, genes))
        self.gene_of = np.concatenate([self.gene_of, genes])
        return np.arange(len(self.gene_of) - len(genes), len(self.gene_of))

    def _reached(self, module: nn.Module, x: Tensor, output: Tensor) -> Bits | None:
        """(outputs, inputs): which channel of a module reaches which; None where that cannot be told.

        What is no number stays none whatever is done with it: each input channel in turn is made so.
        """
        probe = x[:1].repeat_interleave(x.shape[1], 0).detach()
        each = torch.arange(x.shape[1], device=x.device)
        self.inside_detached += 1  # modules inside are not looked at
        try:
            probe[each, each] = float("nan")
            found = module.forward(probe)
        except Exception:
            return None
        finally:
            self.inside_detached -= 1
        if not isinstance(found, Tensor) or found.shape != (x.shape[1], *output.shape[1:]):
            return None
        return np.asarray(found.isnan().flatten(2).any(dim=2).T.cpu().numpy())


def _atoms(payload: Any) -> Atoms:
    assert isinstance(payload, Channels)
    return payload.atoms
