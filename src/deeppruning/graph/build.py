"""Building a plan: trace, probe, and adapt until every cut equals silence."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.graph.assemble import GraphOptions, assemble
from deeppruning.graph.atoms import AtomTable, Ids
from deeppruning.graph.cut import cut
from deeppruning.graph.depth.prove import DepthFinder
from deeppruning.graph.follow import OperationList
from deeppruning.graph.plan import Bits, Plan
from deeppruning.graph.probe import ExpectedSteps, Fault, find_faults
from deeppruning.graph.remedies import Decisions, Doctor, count_operations
from deeppruning.graph.silence import kept_atoms
from deeppruning.graph.trace import Record, Trace, Tracer, run_on_labels
from deeppruning.graph.twin import batch_size, doubled, probe_copy, seeded

# Shares of filters that stay in the random genomes which every network must pass, and the modes to try.
PROBES = ((0.5, ("eval", "train")), (0.8, ("eval",)))


@dataclass
class Built:
    """A plan with what is needed to run the proof again."""

    plan: Plan
    classes: Ids
    gene_of_class: Ids
    detached: frozenset[str]
    records: list[Record]  # of the run in evaluation mode
    notes: list[str]
    rounds: int  # how often the network was traced until every probe held


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
        self._find_training_input()

    def build(self) -> Built:
        """Trace and probe until nothing differs; each round settles what the last one found wrong."""
        rounds = 0
        while True:
            rounds += 1
            table = AtomTable(choices=dict(self.decisions.choices))
            traces = self._trace(table)
            if rounds == 1:
                self._check_repeatable(traces["eval"])
            plan, classes, gene_of_class = assemble(
                self.model, table, traces, self.options, batch=self._batch(traces["eval"])
            )
            detached = frozenset(self.decisions.detached)
            built = Built(plan, classes, gene_of_class, detached, traces["eval"].records, self.notes, rounds)
            found = self._probe(built, traces)
            if found is None:
                return self._with_depth(built, traces) if self.options.depth else built
            mode, faults = found
            doctor = Doctor(self.model, self.decisions, table, classes)
            stuck = rounds > 10 + 2 * count_operations(traces)
            if stuck or not doctor.treat(faults, traces[mode]):
                raise GraphError(
                    "the network cannot be adapted: thin copies of it fail, though nothing is cut any more"
                    + (f" ({faults[0].error})" if faults[0].error else "")
                )

    def _with_depth(self, built: Built, traces: Mapping[str, Trace]) -> Built:
        finder = DepthFinder(
            self.model,
            built.plan,
            built.classes,
            built.gene_of_class,
            built.detached,
            {mode: trace.records for mode, trace in traces.items()},
            self.inputs,
        )
        return replace(built, plan=replace(built.plan, depth=finder.find()))

    def _trace(self, table: AtomTable) -> dict[str, Trace]:
        traces = {}
        for mode, (args, kwargs) in self.inputs.items():
            self.model.train(mode == "train")
            tracer = Tracer(self.model, table, detached=frozenset(self.decisions.detached))
            with seeded():
                traces[mode] = run_on_labels(self.model, args, kwargs, tracer)
            self.decisions.apply(table, traces[mode].records)
        return traces

    def _batch(self, trace: Trace) -> int:
        return batch_size(self.args, self.kwargs) if trace.batched else 1

    def _probe(self, built: Built, traces: Mapping[str, Trace]) -> tuple[str, list[Fault]] | None:
        plan = built.plan
        if not plan.num_genes:
            return None
        repair = plan.repair()
        generator = np.random.default_rng(0)
        for share, modes in PROBES:
            genome = repair(generator.random((1, plan.num_genes)) < share)[0]
            for mode in modes:
                faults = self._compare(built, genome, mode, traces[mode].records) if mode in traces else []
                if faults:
                    return mode, faults
        return None

    def _compare(self, built: Built, genome: Bits, mode: str, records: list[Record]) -> list[Fault]:
        args, kwargs = self.inputs[mode]
        self.model.train(mode == "train")
        kept = kept_atoms(built.classes, built.gene_of_class, genome)
        silent = ExpectedSteps(self.model, built.detached, records, kept, compare_values=mode == "eval")
        with seeded():
            silent.run(self.model, args, kwargs)
        thin = cut(self.model, built.plan.recipe(genome))
        with seeded():
            return find_faults(thin, args, kwargs, silent.steps, built.detached, strict_order=mode == "eval")

    def _check_repeatable(self, trace: Trace) -> None:
        """Another run under other random numbers must execute the same operations."""
        self.model.eval()
        tracer = OperationList(self.model)
        with seeded(1):
            tracer.run(self.model, self.args, self.kwargs)
        traced = [(record.name, record.shapes) for record in trace.records]
        if tracer.operations != traced:
            pairs = zip(tracer.operations, traced, strict=False)
            first = next(
                (i for i, (a, b) in enumerate(pairs) if a != b), min(len(tracer.operations), len(traced))
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
