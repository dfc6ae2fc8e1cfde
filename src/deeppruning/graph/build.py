"""Building a plan: trace, probe, and adapt until every cut equals silence.

What a probe finds wrong is mended in the mildest way that helps: tie the pieces of a split, run a
parameter-free submodule at its old width, freeze the channels at the operation that has a size
written into it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph.assemble import GraphOptions, assemble
from deeppruning.graph.atoms import AtomTable, Ids
from deeppruning.graph.cut import cut
from deeppruning.graph.plan import Bits, Plan
from deeppruning.graph.probe import Fault, SilentSteps, find_fault
from deeppruning.graph.repair import Repair
from deeppruning.graph.silence import kept_atoms
from deeppruning.graph.trace import Record, Trace, Tracer, run_on_labels
from deeppruning.graph.twin import batch_size, doubled, probe_copy, seeded

PROBES = 2  # random genomes that every network must pass before its graph is handed out


@dataclass
class Built:
    """A plan with what is needed to run the proof again."""

    plan: Plan
    table: AtomTable
    classes: Ids
    gene_of_class: Ids
    detached: frozenset[str]
    notes: list[str]


@dataclass
class Decisions:
    """What probes have taught about a network so far; a trace starts over with them."""

    detached: set[str] = field(default_factory=set)
    tied: set[tuple[object, ...]] = field(default_factory=set)
    frozen: dict[tuple[object, ...], str] = field(default_factory=dict)
    frozen_constants: dict[tuple[object, ...], str] = field(default_factory=dict)


class Builder:
    """Builds the plan of one network; works on copies and leaves the network as it is."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: GraphOptions
    ) -> None:
        self.options = options
        self.notes: list[str] = []
        self.decisions = Decisions()
        self.model, self.args, self.kwargs = probe_copy(model, args, dict(kwargs))
        self.inputs = {"eval": (self.args, self.kwargs)}
        self._check_repeatable()
        self._find_training_input()

    def build(self) -> Built:
        """Trace and probe until nothing differs; each round settles one place of the forward code."""
        rounds = 0
        while True:
            built, traces = self._trace()
            fault = self._probe(built, traces)
            if fault is None:
                return built
            rounds += 1
            mode, where = fault
            if rounds > 10 + 2 * sum(len(trace.records) for trace in traces.values()):
                raise GraphError(
                    f"the network cannot be adapted: {where.error or 'thin copies keep differing'}"
                )
            self._settle(mode, where, traces[mode].records)

    def _trace(self) -> tuple[Built, dict[str, Trace]]:
        table = AtomTable()
        detached = frozenset(self.decisions.detached)
        traces = {}
        for mode, (args, kwargs) in self.inputs.items():
            self.model.train(mode == "train")
            tracer = Tracer(self.model, table, mode=mode, detached=detached)
            with seeded():
                traces[mode] = run_on_labels(self.model, args, kwargs, tracer)
            self._apply_decisions(table, mode, traces[mode].records)
        plan, classes, gene_of_class = assemble(
            self.model, table, traces, self.options, batch=batch_size(self.args, self.kwargs)
        )
        table.sealed = True
        return Built(plan, table, classes, gene_of_class, detached, self.notes), traces

    def _apply_decisions(self, table: AtomTable, mode: str, records: Sequence[Record]) -> None:
        for record in records:
            if record.owner in self.decisions.tied:
                _tie_pieces(table, record)
            if record.owner in self.decisions.frozen:
                for ids in _ids_at(record):
                    table.freeze(ids, self.decisions.frozen[record.owner])
            if record.owner in self.decisions.frozen_constants:
                for issue in _constants_at(table, record):
                    table.freeze(issue, self.decisions.frozen_constants[record.owner])

    def _probe(self, built: Built, traces: Mapping[str, Trace]) -> tuple[str, Fault] | None:
        plan = built.plan
        repair = Repair(
            num_genes=plan.num_genes,
            layers=[layer.genes for layer in plan.layers],
            pieces=plan.pieces,
        )
        generator = np.random.default_rng(0)
        for share in (0.5, 0.8)[:PROBES] if plan.num_genes else (1.0,):
            genome = repair(generator.random((1, plan.num_genes)) < share)[0]
            for mode, (args, kwargs) in self.inputs.items():
                fault = self._compare(built, genome, mode, args, kwargs)
                if fault is not None:
                    return mode, fault
        return None

    def _compare(
        self, built: Built, genome: Bits, mode: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Fault | None:
        self.model.train(mode == "train")
        kept = kept_atoms(built.classes, built.gene_of_class, genome)
        # In training mode random masks depend on sizes: only shapes can be compared there.
        silent = SilentSteps(kept, compare_values=mode == "eval")
        tracer = Tracer(self.model, built.table, mode=mode, detached=built.detached, on_output=silent)
        with seeded():
            run_on_labels(self.model, args, kwargs, tracer)
        thin = cut(self.model, built.plan, genome)
        with seeded():
            return find_fault(thin, args, kwargs, silent.steps, built.detached)

    def _settle(self, mode: str, fault: Fault, records: Sequence[Record]) -> None:
        """Choose the mildest remedy not tried yet at this place, going back if there is none left."""
        for record in reversed(records[: fault.record + 1]):
            module = self._detachable(record)
            if module is not None:
                self.decisions.detached.add(module)
                return
            key = record.owner
            reason = f"{record.name} in {record.layer or 'forward'}: a size or order is written into the code"
            if record.name in ("split", "slice", "narrow", "chunk") and key not in self.decisions.tied:
                self.decisions.tied.add(key)
                return
            if record.name in ("constant_pad_nd", "cat") and key not in self.decisions.frozen_constants:
                self.decisions.frozen_constants[key] = reason
                return
            if _ids_at(record) and key not in self.decisions.frozen:
                self.decisions.frozen[key] = reason
                return
        raise GraphError(
            "a thin copy of the network does not run, though nothing of it is cut any more"
            + (f": {fault.error}" if fault.error else "")
        )

    def _detachable(self, record: Record) -> str | None:
        """The outermost submodule around an operation that has no parameters, if it can be wrapped."""
        modules = dict(self.model.named_modules())
        for name in record.modules:
            module = modules.get(name)
            if name and module is not None and name not in self.decisions.detached:
                free = not any(True for _ in module.parameters())
                persistent = any(True for _ in module.state_dict())
                if (
                    free
                    and not persistent
                    and _maps_channels(self.model, name, *self.inputs[str(record.owner[0])])
                ):
                    return name
        return None

    def _check_repeatable(self) -> None:
        """Two runs under different random numbers must execute the same operations."""
        self.model.eval()
        names = []
        for seed in (0, 1):
            table = AtomTable()
            tracer = Tracer(self.model, table, mode="eval")
            with seeded(seed):
                trace = run_on_labels(self.model, self.args, self.kwargs, tracer)
            names.append([(record.name, tuple(record.shapes)) for record in trace.records])
        if names[0] != names[1]:
            first = next(
                (i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), min(map(len, names))
            )
            raise GraphError(
                "the network draws its structure at random: two runs in evaluation mode differ at operation "
                f"{first}; make its forward repeatable in eval() before pruning it"
            )

    def _find_training_input(self) -> None:
        """Training mode may run other code (auxiliary heads): trace it too, with a batch of 2 if need be."""
        self.model.train()
        for double in (False, True):
            args, kwargs = (doubled(self.args), doubled(self.kwargs)) if double else (self.args, self.kwargs)
            try:
                with seeded():
                    self.model(*args, **kwargs)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            self.inputs["train"] = (args, kwargs)
            return
        self.notes.append(f"training mode was not traced, its forward failed ({failure})")


def _ids_at(record: Record) -> list[Ids]:
    return [channels.ids for channels in (*record.inputs, *record.outputs) if channels is not None]


def _constants_at(table: AtomTable, record: Record) -> list[Ids]:
    return [
        issue.ids
        for owner, issue in table.issues.items()
        if issue.kind == "constant" and isinstance(owner, tuple) and owner[:2] == record.owner
    ]


def _tie_pieces(table: AtomTable, record: Record) -> None:
    """A split into equal pieces stays one when all pieces lose the same positions."""
    if not record.inputs or record.outputs[0] is None:
        return
    whole, piece = record.inputs[0].ids, record.outputs[0].ids
    if len(piece) and len(whole) % len(piece) == 0:
        table.tie(whole, np.tile(whole[: len(piece)], len(whole) // len(piece)))


def _maps_channels(model: nn.Module, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a submodule turns one tensor with channels along axis 1 into another such."""
    seen: list[bool] = []

    def look(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        fits = (
            len(inputs) == 1
            and not keywords
            and all(isinstance(x, Tensor) and x.ndim >= 2 for x in (*inputs, output))
        )
        seen.append(fits and inputs[0].shape[0] == output.shape[0])

    handle = model.get_submodule(name).register_forward_hook(look, with_kwargs=True)
    try:
        with seeded():
            model(*args, **kwargs)
    finally:
        handle.remove()
    return bool(seen) and all(seen)
