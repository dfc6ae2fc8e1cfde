"""The copies of a network that a build runs, and the runs on labels, at as little cost as can be.

Evaluation mode is run in double precision, where a wrong cut shows in the values. Of training mode
only shapes can be compared, for random masks depend on sizes: it is run on tensors without data, or
where the forward code needs their values, on real ones.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from deeppruning.graph.atoms import AtomTable
from deeppruning.graph.duplicate import unrun
from deeppruning.graph.remedies import Decisions
from deeppruning.graph.trace import Trace, Tracer, run_on_labels
from deeppruning.graph.twin import doubled, ghost_copy, in_own_precision, probe_copy, seeded


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

    def scene(self, mode: str) -> Scene:
        """The scene of a mode that was traced."""
        found = self.eval if mode == "eval" else self.train
        assert found is not None
        return found

    def trace(self, decisions: Decisions) -> tuple[AtomTable, dict[str, Trace]]:
        """Run the network on labels in both modes."""

        def blank() -> AtomTable:
            return AtomTable(choices=dict(decisions.choices))

        table = blank()
        try:
            traces = {"eval": self.eval.trace(table, decisions)}
        except Exception as error:
            if self.settled:
                raise
            self.eval = Scene(*in_own_precision(*self.given, error))
            table = blank()
            traces = {"eval": self.eval.trace(table, decisions)}
        if not self.settled:
            self._find_training([*self._ghosts(), self.eval])
        if self.train is not None and self._is_ghost():
            try:
                shadow = copy.deepcopy(table)
                traces["train"] = self.train.trace(shadow, decisions)
                table = shadow
            except Exception:
                self.make_training_real()
        if self.train is not None and "train" not in traces:
            traces["train"] = self.train.trace(table, decisions)
        self.settled = True
        return table, traces

    def _is_ghost(self) -> bool:
        return self.train is not None and self.train.model is not self.eval.model

    def make_training_real(self) -> bool:
        """Run training mode on real tensors from now on; false if it is so already."""
        if not self._is_ghost():
            return False
        self._find_training([self.eval])
        return True

    def _find_training(self, scenes: list[Scene]) -> None:
        """Training mode may run other code (auxiliary heads): find inputs for it, a batch of 2 if need be."""
        self.train = None
        failure = ""
        for scene in scenes:
            for args, kwargs in ((scene.args, scene.kwargs), doubled((scene.args, dict(scene.kwargs)))):
                attempt = Scene(scene.model, args, kwargs, training=True)
                try:
                    with seeded():
                        attempt.copy()(*attempt.args, **attempt.kwargs)
                except Exception as error:
                    failure = f"{type(error).__name__}: {error}"
                    continue
                self.train = attempt
                return
        self.notes.append(f"training mode was not traced, its forward failed ({failure})")

    def _ghosts(self) -> list[Scene]:
        try:
            return [Scene(*ghost_copy(self.eval.model, self.eval.args, self.eval.kwargs))]
        except Exception:  # tensors of a kind that cannot be without data
            return []
