"""What becomes of a network that loses whole sets of filters: what is gone, what is dead, what is constant.

A *unit* is a set of genes that makes up all filters of its layers. When units are emptied, operations on
their channels have nothing to work on (*empty*), others no longer depend on the input (*constant*), and
whoever is read only by those is *dead*. Layers are then replaced: by a `Hollow` where nothing is left to
compute, by an `Answer` where a layer reads nothing but still speaks to the living.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from deeppruning.graph.cut.hollow import Extents
from deeppruning.graph.depth.flow import Flow
from deeppruning.graph.labels.payloads import Channels, Constant
from deeppruning.graph.plan import Genes
from deeppruning.graph.trace.tracer import Record

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
Emptied = frozenset[int]  # units by number


@dataclass(frozen=True)
class Forms:
    """What stands in for which submodule, and which ones run as ever."""

    hollow: frozenset[str] = frozenset()
    answers: Mapping[str, str] = field(default_factory=dict)  # layer -> the layer that feeds it, or ""
    spread: frozenset[str] = frozenset()  # of these, the ones that must fill a whole map
    busy: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ()  # parameters that are not stored any more, however wide their layers are
    biased: tuple[str, ...] = ()  # layers without a bias that answer with one now

    @property
    def replaced(self) -> frozenset[str]:
        """All submodules that something stands in for."""
        return self.hollow | frozenset(self.answers)


@dataclass(frozen=True)
class Settled:
    """All units that go when some are emptied, and what the network then looks like."""

    units: Emptied
    forms: Forms
    sound: bool  # the outputs still depend on the input, and all that must be replaced can be


@dataclass(frozen=True)
class Kind:
    """What is asked about a submodule here, so that none of them has to be kept."""

    leaf: bool  # nothing inside it is looked at by itself
    layer: bool  # a convolution or linear layer
    norm: bool  # one of torch's own batch norms, with statistics: its answer can be worked out beforehand
    known: bool  # there is a stand-in for it

    @classmethod
    def of(cls, module: nn.Module) -> Kind:
        """The kind of a submodule."""
        return cls(
            # Norms with an activation inside are common, and cannot run without channels.
            leaf=isinstance(module, _NormBase) or not any(True for _ in module.children()),
            layer=isinstance(module, (_ConvNd, nn.Linear)),
            norm=type(module) in BATCH_NORMS and module.running_mean is not None,
            known=Extents.of(module) is not None,
        )


class Branches:
    """One run of a network, as a graph on which units can be emptied."""

    def __init__(
        self, model: nn.Module, flow: Flow, records: Sequence[Record], genes: Genes, units: Sequence[Genes]
    ) -> None:
        self.flow = flow
        self.kinds = {name: Kind.of(model.get_submodule(name)) for name in flow.calls}
        unit_of = {int(gene): number for number, unit in enumerate(units) for gene in unit}
        self.covers: list[Emptied | None] = []  # operation -> units without which nothing of it is left
        self.operations: list[list[int]] = [[] for _ in units]  # unit -> operations on its channels
        self.makers: list[list[int]] = [[] for _ in units]  # unit -> operations its channels come from
        touched: list[Emptied] = []
        for operation, record in enumerate(records):
            found = _genes_at(record, genes)
            here = frozenset(unit_of[gene] for gene in found if gene in unit_of)
            whole = all(isinstance(payload, (Channels, Constant)) for payload in record.payloads)
            self.covers.append(here if found and whole and found <= unit_of.keys() else None)
            before = frozenset().union(*(touched[source] for source in flow.reads[operation] if source >= 0))
            touched.append(here)
            for number in here:
                self.operations[number].append(operation)
            for number in here - before:
                self.makers[number].append(operation)
        self.call_of: dict[int, str] = {}  # last operation of a leaf's call -> the leaf
        self.first_of: dict[int, int] = {}  # the same -> the first operation of that call
        for name, spans in flow.calls.items():
            for start, stop in spans:
                if self.kinds[name].leaf and stop > start:
                    self.call_of[stop - 1] = name
                    self.first_of[stop - 1] = start
        self.readers: list[set[int]] = [set() for _ in records]
        for operation, reads in enumerate(flow.reads):
            for source in reads:
                if source >= 0:
                    self.readers[source].add(operation)
        self.usual = State(self, frozenset())


class State:
    """The network with some units emptied, operation by operation."""

    def __init__(self, branches: Branches, emptied: Emptied) -> None:
        self.branches = branches
        flow = branches.flow
        count = len(flow.reads)
        self.empty = [cover is not None and cover <= emptied for cover in branches.covers]
        self.hears: list[frozenset[int]] = []  # operation -> the inputs of the network it depends on
        for operation in range(count):
            self.hears.append(frozenset() if self.empty[operation] else self._heard(flow.reads[operation]))
        self.answers = self._answers() if emptied else {}
        self.needed = [False] * count
        stack = [operation for writers in flow.outputs for operation in writers if operation >= 0]
        while stack:
            operation = stack.pop()
            if self.needed[operation] or self.empty[operation]:
                continue
            self.needed[operation] = True
            if branches.call_of.get(operation) not in self.answers:
                stack += [source for source in flow.reads[operation] if source >= 0]

    def speaks(self) -> bool:
        """Whether every output still depends on every input it depended on."""
        usual = self.branches.usual
        return all(self._heard(writers) == usual._heard(writers) for writers in self.branches.flow.outputs)

    def _heard(self, sources: frozenset[int]) -> frozenset[int]:
        inputs = frozenset(source for source in sources if source < 0)
        return inputs.union(*(self.hears[source] for source in sources if source >= 0))

    def resting(self) -> Emptied:
        """The units that nobody hears or that hear nothing any more, those emptied among them."""
        pairs = enumerate(zip(self.branches.makers, self.branches.operations, strict=True))
        return frozenset(
            number
            for number, (makers, operations) in pairs
            if not any(self.hears[operation] for operation in makers)
            or not any(self.needed[operation] for operation in operations)
        )

    def forms(self) -> Forms:
        """What is to be replaced.

        What has no stand-in is left as it is, for most of torch's functions take a tensor without channels.
        """
        usual, kinds = self.branches.usual, self.branches.kinds
        hollow: set[str] = set()
        busy: set[str] = set()
        for operation, name in self.branches.call_of.items():
            if name not in self.answers:
                gone = self.empty[operation] or (usual.needed[operation] and not self.needed[operation])
                (hollow if gone else busy).add(name)
        hollow = {name for name in hollow if kinds[name].known}
        return Forms(frozenset(hollow), dict(self.answers), self._spread(), frozenset(busy))

    def _spread(self) -> frozenset[str]:
        """The answers that are not simply added to, or multiplied with, something of full size."""
        operations = self.branches.call_of.items()
        return frozenset(
            name for operation, name in operations if name in self.answers and not self._widens(operation)
        )

    def _widens(self, operation: int) -> bool:
        """Whether a constant of one place a map is brought to full size by whoever reads it."""
        flow = self.branches.flow
        if any(operation in writers for writers in flow.outputs):
            return False
        for reader in self.branches.readers[operation]:
            if reader not in flow.pointwise:
                return False
            if not self.hears[reader]:
                if not self._widens(reader):
                    return False
            elif operation in flow.overwrites.get(reader, ()) or not any(
                source < 0 or self.hears[source] for source in flow.pointwise[reader]
            ):
                return False
        return True

    def _answers(self) -> dict[str, str]:
        """Layers that read nothing any more but are heard; with a batch norm behind, that one answers."""
        found: dict[str, str] = {}
        for operation, name in self.branches.call_of.items():
            silent = (
                self.branches.usual.hears[operation]
                and not self.hears[operation]
                and not self.empty[operation]
            )
            if silent and self.branches.kinds[name].layer and self._reads_nothing(operation):
                norm = self._norm_behind(operation)
                found[norm or name] = name if norm else ""
        return found

    def _reads_nothing(self, operation: int) -> bool:
        """Whether all that the call ending here reads from outside is empty."""
        start = self.branches.first_of[operation]
        outside = {
            source
            for inner in range(start, operation + 1)
            for source in self.branches.flow.reads[inner]
            if source < start
        }
        return all(source >= 0 and self.empty[source] for source in outside)

    def _norm_behind(self, operation: int) -> str | None:
        """The batch norm that alone reads this operation, if it can be worked out beforehand."""
        readers = self.branches.readers[operation]
        last = max(readers, default=-1)
        name = self.branches.call_of.get(last)
        if name is None or any(reader < self.branches.first_of[last] for reader in readers):
            return None
        once = len(self.branches.flow.calls[name]) == 1
        return name if once and self.branches.kinds[name].norm else None


def _genes_at(record: Record, genes: Genes) -> set[int]:
    found: set[int] = set()
    for payload in record.payloads:
        if isinstance(payload, Channels):
            found.update(genes[payload.atoms].tolist())
    return found
