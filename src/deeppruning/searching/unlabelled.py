"""A task without labels: candidates are judged by how far their outputs drift from the original's."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from deeppruning.errors import InputError
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.reference import FEWEST
from deeppruning.searching.drift import drift
from deeppruning.searching.task import REFITTED_ON, Judgement, Task
from deeppruning.training.evaluate import mode
from deeppruning.training.tensors import hash_tensors

CHUNK = 128  # inputs that go through the network at once
KEPT_BYTES = 2**28  # of the original's outputs; what is larger is worked out anew for each candidate


@dataclass
class Unlabelled(Task):
    """Any network, any inputs: a part of them to refit on, the rest to judge by."""

    model: nn.Module
    inputs: Any  # a tensor, a tuple of arguments or a dict of them, nested or not, with a batch
    device: str = "cpu"
    _wanted: list[Any] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        count = batch_size(as_call(self.inputs))
        if count < 2 * FEWEST:
            raise InputError(
                f"a search needs at least {2 * FEWEST} inputs, half to refit on and half to judge by, "
                f"got {count}"
            )

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """The share of other answers, or the relative distance of the outputs."""
        return self.judge(model, seed).error

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """Drift on the inputs that no refit has seen, averaged over all of them."""
        call = self._part(refitted=False)
        count, error, score = batch_size(call), 0.0, 0.0
        model.to(self.device)
        kept = self._original_outputs(call)
        original = None if kept is not None else deepcopy(self.model).to(self.device)
        for number, start in enumerate(range(0, count, CHUNK)):
            rows = slice(start, min(start + CHUNK, count))
            part = part_of(call, rows)
            if kept is not None:
                wanted = kept[number]
            else:
                assert original is not None
                wanted = self._run(original, part)
            found = drift(wanted, self._run(model, part))
            share = (rows.stop - rows.start) / count
            error, score = error + share * found.error, score + share * found.score
        return Judgement(error, score)

    def refit_inputs(self, *, final: bool = False) -> Any:
        """Every second input at most; all of them once nothing is judged any more."""
        args, kwargs = as_call(self.inputs) if final else self._part(refitted=True)
        return kwargs or args

    def untrained_error(self, model: nn.Module) -> float | None:
        """What the network itself comes to: nothing, unless its outputs are not finite or not repeatable."""
        return self.judge(model, 0).error

    def fingerprint(self) -> str:
        """A hash of the inputs."""
        return hash_tensors(
            {str(number): leaf for number, leaf in enumerate(tensors_in(as_call(self.inputs)))}
        )

    def _part(self, *, refitted: bool) -> Call:
        call = as_call(self.inputs)
        count = batch_size(call)
        step = max(2, -(-count // REFITTED_ON))
        chosen = torch.arange(count) % step == 0
        rows: Any = chosen if refitted else ~chosen
        return part_of(call, rows)

    def _original_outputs(self, call: Call) -> list[Any] | None:
        if self._wanted is None:
            original = deepcopy(self.model).to(self.device)
            found, size = [], 0
            for start in range(0, batch_size(call), CHUNK):
                found.append(self._run(original, part_of(call, slice(start, start + CHUNK))))
                size += sum(leaf.nbytes for leaf in tensors_in(found[-1]))
                if size > KEPT_BYTES:
                    found = []
                    break
            self._wanted = found
        return self._wanted or None

    def _run(self, model: nn.Module, call: Call) -> Any:
        args, kwargs = onto(call, self.device)
        with mode(model, training=False), torch.no_grad():
            return model(*args, **kwargs)
