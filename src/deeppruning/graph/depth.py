"""Depth: which sets of filters a network can lose altogether, and what replaces the branch around them.

A *unit* is a set of genes that makes up all filters of its layers. When units are emptied, operations on
their channels have nothing left to compute (*empty*), others no longer depend on the input (*constant*), and
some are *unneeded*, because only those read them. Layers are then replaced: by a `Hollow` where nothing is
left to compute, by an `Answer` where a layer reads nothing but is still read by others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.cut.hollow import Extents
from deeppruning.graph.payloads import Channels, Constant
from deeppruning.graph.trace.flow import Flow
from deeppruning.graph.trace.tracer import Record

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
Emptied = frozenset[int]  # units by number


@dataclass(frozen=True)
class Forms:
    """Which submodules are replaced and by what, and which run as before."""

    hollow: frozenset[str] = frozenset()
    answers: Mapping[str, str] = field(default_factory=dict)  # layer -> the layer that feeds it, or ""
    spread: frozenset[str] = frozenset()  # the answers that must fill a whole map
    busy: frozenset[str] = frozenset()
    dropped: tuple[str, ...] = ()  # parameters that are no longer stored
    biased: tuple[str, ...] = ()  # layers without a bias whose replacement has one

    @property
    def replaced(self) -> frozenset[str]:
        """All submodules that are replaced."""
        return self.hollow | frozenset(self.answers)

    def drops(self, name: str) -> bool:
        """Whether a parameter or buffer disappears with the submodule it belongs to."""
        module, _, own = name.rpartition(".")
        return module in self.hollow or (module in self.answers and own != "bias")


@dataclass(frozen=True)
class Settled:
    """All units that go when some are emptied, and the network that is left."""

    units: Emptied
    forms: Forms
    sound: bool  # the outputs still depend on the input, and everything that must be replaced can be


class Branches:
    """One run of a network, as a graph on which units can be emptied."""

    def __init__(
        self, model: nn.Module, flow: Flow, records: Sequence[Record], genes: Genes, units: Sequence[Genes]
    ) -> None:
        self.flow = flow
        modules = {name: model.get_submodule(name) for name in flow.calls}
        self.layers = {name for name, module in modules.items() if isinstance(module, (_ConvNd, nn.Linear))}
        # Torch's own batch norms with statistics: what they give for a constant can be computed beforehand.
        self.norms = {
            name
            for name, module in modules.items()
            if type(module) in BATCH_NORMS and module.running_mean is not None
        }
        self.replaceable = {name for name, module in modules.items() if Extents.of(module) is not None}
        self._sort_operations(records, genes, units)
        self.call_of: dict[int, str] = {}  # last operation of a leaf's call -> the leaf
        self.first_of: dict[int, int] = {}  # the same -> the first operation of that call
        for name, calls in flow.calls.items():
            # Norms with an activation inside are common, and cannot run without channels.
            if isinstance(modules[name], _NormBase) or not any(True for _ in modules[name].children()):
                for call in filter(None, calls):
                    self.call_of[call[-1]] = name
                    self.first_of[call[-1]] = call.start
        self.full = State(self, frozenset())

    def _sort_operations(self, records: Sequence[Record], genes: Genes, units: Sequence[Genes]) -> None:
        """Which operations make, carry and read the channels of each unit."""
        unit_of = {int(gene): number for number, unit in enumerate(units) for gene in unit}
        self.covers: list[Emptied | None] = []  # operation -> units without which nothing of it is left
        self.operations: list[list[int]] = [[] for _ in units]  # unit -> operations on its channels
        self.makers: list[list[int]] = [[] for _ in units]  # unit -> operations that make its channels
        touched: list[Emptied] = []
        for operation, record in enumerate(records):
            made = [genes[each.atoms].tolist() for each in record.payloads if isinstance(each, Channels)]
            own = {gene for listed in made for gene in listed}
            here = frozenset(unit_of[gene] for gene in own if gene in unit_of)
            whole = all(isinstance(payload, (Channels, Constant)) for payload in record.payloads)
            self.covers.append(here if own and whole and own <= unit_of.keys() else None)
            sources = self.flow.reads[operation]
            before = frozenset().union(*(touched[source] for source in sources if source >= 0))
            touched.append(here)
            for number in here:
                self.operations[number].append(operation)
            for number in here - before:
                self.makers[number].append(operation)


class State:
    """The network with some units emptied, operation by operation."""

    def __init__(self, branches: Branches, emptied: Emptied) -> None:
        self.branches = branches
        flow = branches.flow
        count = len(flow.reads)
        self.empty = [cover is not None and cover <= emptied for cover in branches.covers]
        self.inputs: list[frozenset[int]] = []  # operation -> the inputs of the network it depends on
        for operation in range(count):
            self.inputs.append(
                frozenset() if self.empty[operation] else self._inputs_of(flow.reads[operation])
            )
        self.answers = self._answers() if emptied else {}
        self.needed = [False] * count
        stack = [operation for operation in flow.returned if operation >= 0]
        while stack:
            operation = stack.pop()
            if self.needed[operation] or self.empty[operation]:
                continue
            self.needed[operation] = True
            if branches.call_of.get(operation) not in self.answers:
                stack += [source for source in flow.reads[operation] if source >= 0]

    def keeps_inputs(self) -> bool:
        """Whether every output still depends on every input that it depends on in the full network."""
        full = self.branches.full
        return all(self._inputs_of(each) == full._inputs_of(each) for each in self.branches.flow.outputs)

    def _inputs_of(self, sources: frozenset[int]) -> frozenset[int]:
        """The inputs of the network that some operations depend on."""
        inputs = frozenset(source for source in sources if source < 0)
        return inputs.union(*(self.inputs[source] for source in sources if source >= 0))

    def unused(self) -> Emptied:
        """The units that no longer depend on the input or are no longer needed, the emptied ones included."""
        pairs = enumerate(zip(self.branches.makers, self.branches.operations, strict=True))
        return frozenset(
            number
            for number, (makers, operations) in pairs
            if not any(self.inputs[operation] for operation in makers)
            or not any(self.needed[operation] for operation in operations)
        )

    def forms(self) -> Forms:
        """What is replaced.

        What has no replacement is left as it is, since most torch functions accept a tensor without channels.
        """
        full = self.branches.full
        hollow: set[str] = set()
        busy: set[str] = set()
        for operation, name in self.branches.call_of.items():
            if name not in self.answers:
                gone = self.empty[operation] or (full.needed[operation] and not self.needed[operation])
                (hollow if gone else busy).add(name)
        hollow &= self.branches.replaceable
        return Forms(frozenset(hollow), dict(self.answers), self._spread(), frozenset(busy))

    def _spread(self) -> frozenset[str]:
        """The answers that are not simply added to, or multiplied with, something of full size."""
        operations = self.branches.call_of.items()
        return frozenset(
            name for operation, name in operations if name in self.answers and not self._widens(operation)
        )

    def _widens(self, operation: int) -> bool:
        """Whether all readers broadcast a constant of one position per map to full size."""
        flow = self.branches.flow
        if operation in flow.returned:
            return False
        for reader in flow.readers[operation]:
            if reader not in flow.pointwise:
                return False
            if not self.inputs[reader]:
                if not self._widens(reader):
                    return False
            elif operation in flow.overwrites.get(reader, ()) or not any(
                source < 0 or self.inputs[source] for source in flow.pointwise[reader]
            ):
                return False
        return True

    def _answers(self) -> dict[str, str]:
        """Layers that read nothing any more but are still read; a batch norm behind answers for them."""
        answers: dict[str, str] = {}
        for operation, name in self.branches.call_of.items():
            constant = self.branches.full.inputs[operation] and not self.inputs[operation]
            if not constant or self.empty[operation] or name not in self.branches.layers:
                continue
            if self._reads_nothing(operation):
                norm = self._norm_behind(operation)
                answers[norm or name] = name if norm else ""
        return answers

    def _reads_nothing(self, operation: int) -> bool:
        """Whether everything that the call ending here reads from outside is empty."""
        call = range(self.branches.first_of[operation], operation + 1)
        return all(source >= 0 and self.empty[source] for source in self.branches.flow.read_by(call))

    def _norm_behind(self, operation: int) -> str | None:
        """The batch norm that alone reads this operation, if its answer can be computed beforehand."""
        readers = self.branches.flow.readers[operation]
        last = max(readers, default=-1)
        name = self.branches.call_of.get(last)
        if name is None or any(reader < self.branches.first_of[last] for reader in readers):
            return None
        return name if len(self.branches.flow.calls[name]) == 1 and name in self.branches.norms else None


class Depth:
    """Empties units of a network; `allowed` are those that a genome may empty.

    A branch may run in training only (an auxiliary classifier), so all modes count: a unit is unused when it
    is so in each mode, and a submodule is replaced in all of them alike.
    """

    def __init__(self, model: nn.Module, units: Sequence[Genes], modes: Sequence[Branches]) -> None:
        self.units = list(units)
        self.modes = modes
        self.shared = _with_several_names(model)
        self.parameters = {
            name: tuple(key for key, tensor in module._parameters.items() if tensor is not None)
            for name, module in model.named_modules()
        }
        # What is unused in the full network (a branch that nobody reads) is left as it is.
        self.idle = frozenset.intersection(*(mode.full.unused() for mode in modes))
        self._settled: dict[Emptied, Settled] = {}
        numbers = range(len(self.units))
        self.allowed: Emptied = frozenset(n for n in numbers if self.settle(frozenset({n})).sound)

    def settle(self, emptied: Emptied) -> Settled:
        """The network that is left without these units."""
        if emptied not in self._settled:
            self._settled[emptied] = self._settle(emptied)
        return self._settled[emptied]

    def _settle(self, emptied: Emptied) -> Settled:
        """The network without these units, computed anew in every mode."""
        while True:
            states = [State(mode, emptied) for mode in self.modes]
            unused = frozenset.intersection(*(state.unused() for state in states))
            unused = (unused - self.idle) | emptied
            if unused == emptied:
                break
            emptied = unused
        forms = _merged([state.forms() for state in states])
        if forms is None or forms.replaced & self.shared:
            return Settled(emptied, Forms(), sound=False)
        sound = all(state.keeps_inputs() for state in states)
        return Settled(emptied, self._with_parameters(forms), sound=sound)

    def gone(self, genome: Bits) -> Emptied:
        """The units of which a genome keeps nothing."""
        return frozenset(n for n, unit in enumerate(self.units) if not genome[unit].any())

    def close(self, genome: Bits) -> Emptied:
        """The units that go under this genome; the lowest come back where the outputs would be constant."""
        return self.together(self.gone(genome) & self.allowed)

    def together(self, units: Emptied, first: Emptied = frozenset()) -> Emptied:
        """All that goes when as many of these units go as may at once, the first ones before others."""
        settled = self.settle(units)
        if settled.sound:
            return settled.units
        chosen: Emptied = frozenset()
        for number in (*sorted(first, reverse=True), *sorted(units - first, reverse=True)):
            if self.settle(chosen | {number}).sound:
                chosen |= {number}
        return self.settle(chosen).units

    def branches(self) -> dict[frozenset[int], tuple[str, ...]]:
        """Genes of each unit that may be emptied -> the submodules that disappear with it."""
        return {
            frozenset(self.units[number].tolist()): tuple(
                sorted(self.settle(frozenset({number})).forms.replaced)
            )
            for number in self.allowed
        }

    def genes(self, units: Iterable[int]) -> Genes:
        """The genes of these units."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(self.units[number] for number in units)])

    def _with_parameters(self, forms: Forms) -> Forms:
        """The forms with the parameters that disappear, and the answers that need a bias."""
        hollow = [f"{name}.{key}" for name in forms.hollow for key in self.parameters[name]]
        spare = [f"{name}.{key}" for name in forms.answers for key in self.parameters[name] if key != "bias"]
        biased = [
            feeder or name for name, feeder in forms.answers.items() if "bias" not in self.parameters[name]
        ]
        return replace(forms, dropped=(*hollow, *spare), biased=tuple(biased))


def find_units(layers: Iterable[Genes], groups: Iterable[tuple[int, ...]]) -> list[Genes]:
    """Groups of genes that make up all filters of the layers they are in."""
    by_layer = [set(genes.tolist()) for genes in layers]
    return [
        np.array(sorted(group), dtype=np.int64)
        for group in groups
        if all(genes == set(group) for genes in by_layer if genes & set(group))
    ]


def _merged(forms: Sequence[Forms]) -> Forms | None:
    """The forms of all modes together, None where they contradict each other.

    A submodule that still computes something in one of its calls, or in one mode, stays in all of them.
    """
    busy = frozenset().union(*(each.busy for each in forms))
    hollow = frozenset().union(*(each.hollow for each in forms)) - busy
    answers = {name: feeder for each in forms for name, feeder in each.answers.items()}
    alike = all(
        each.answers.get(name, feeder) == feeder for each in forms for name, feeder in answers.items()
    )
    if not alike or answers.keys() & (busy | hollow):
        return None
    spread = frozenset().union(*(each.spread for each in forms))
    return Forms(hollow, answers, spread, busy)


def _with_several_names(model: nn.Module) -> frozenset[str]:
    """Submodules that are registered more than once: replacing one name would leave the other."""
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    return frozenset(name for listed in names.values() if len(listed) > 1 for name in listed)
