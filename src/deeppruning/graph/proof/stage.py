"""The copies of a network that a build runs, and the runs on labels, at as little cost as can be.

Evaluation mode is run in double precision, where a wrong cut shows in the values. Of training mode
only shapes can be compared, for random masks depend on sizes: single precision will do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from deeppruning.graph.cut.duplicate import unrun
from deeppruning.graph.labels.atoms import AtomTable
from deeppruning.graph.proof.remedies import Decisions
from deeppruning.graph.proof.twin import (
    as_double,
    doubled,
    in_own_precision,
    light_copy,
    probe_copy,
    randomized_inputs,
    seeded,
)
from deeppruning.graph.trace.tracer import Trace, Tracer, run_on_labels


@dataclass(frozen=True)
class Scene:
    """A network that is never run itself, only copies of it, and its inputs."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    training: bool = False

    def copy(self) -> nn.Module:
        """A copy to run once."""
        return unrun(self.model, training=self.training)

    def trace(self, table: AtomTable, decisions: Decisions) -> Trace:
        """Run a copy on labels and apply what has been decided about the network."""
        model = self.copy()
        tracer = Tracer(model, table, detached=frozenset(decisions.detached))
        with seeded():
            trace = run_on_labels(model, self.args, self.kwargs, tracer)
        decisions.apply(table, trace.records)
        return trace


class Stage:
    """The scenes of a network: one in evaluation mode, one in training mode if that can be run."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.given = (model, args, dict(kwargs))
        self.eval = Scene(*probe_copy(*self.given))
        self.train: Scene | None = None
        self.settled = False  # whether both scenes are known to run
        self.notes: list[str] = []
        self.failure = ""

    def scene(self, mode: str) -> Scene:
        """The scene of a mode that was traced."""
        found = self.eval if mode == "eval" else self.train
        assert found is not None
        return found

    def trace(self, decisions: Decisions) -> tuple[AtomTable, dict[str, Trace]]:
        """Run the network on labels in both modes."""
        table = AtomTable(choices=dict(decisions.choices))
        try:
            traces = {"eval": self.eval.trace(table, decisions)}
        except Exception as error:
            if self.settled:
                raise
            self.eval = Scene(*in_own_precision(*self.given, error))
            table = AtomTable(choices=dict(decisions.choices))
            traces = {"eval": self.eval.trace(table, decisions)}
        if traces["eval"].notes and not self.settled:
            table, traces["eval"] = self._own_way(table, traces["eval"], decisions)
        for scene in self._training_scenes():
            shadow = table.fork()  # a run that fails midway leaves nothing behind
            try:
                traces["train"] = scene.trace(shadow, decisions)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                continue
            self.train, table = scene, shadow
            break
        else:
            if not self.settled or self.train is not None:
                self.notes.append(f"training mode was not traced, its forward failed ({self.failure})")
            self.train = None
        self.settled = True
        return table, traces

    def _own_way(self, table: AtomTable, trace: Trace, decisions: Decisions) -> tuple[AtomTable, Trace]:
        """Where values decide about the way a run takes: that of the network's own weights, if it is another.

        Otherwise random ones are better, among which no zeros hide a mistake.
        """
        model, args, kwargs = as_double(*self.given)
        scene = Scene(model, *randomized_inputs((args, kwargs)))
        fresh = AtomTable(choices=dict(decisions.choices))
        own = scene.trace(fresh, decisions)
        if [record.site for record in own.records] == [record.site for record in trace.records]:
            return table, trace
        self.eval = scene
        return fresh, own

    def _training_scenes(self) -> list[Scene]:
        """Training mode may run other code (auxiliary heads): ways to run it, the cheapest first."""
        if self.settled:
            return [] if self.train is None else [self.train]
        light = Scene(*light_copy(self.eval.model, self.eval.args, self.eval.kwargs))
        return [batch for scene in (light, self.eval) for batch in self._both_batches(scene)]

    def _both_batches(self, scene: Scene) -> list[Scene]:
        """The example as it is, and twice in one batch, which norms ask for that see a single number each."""
        args, kwargs = doubled((scene.args, dict(scene.kwargs)))
        return [
            Scene(scene.model, scene.args, scene.kwargs, training=True),
            Scene(scene.model, args, kwargs, training=True),
        ]
