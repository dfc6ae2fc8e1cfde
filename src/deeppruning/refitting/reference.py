"""What the original network answers to some inputs, at some places of each layer; recorded once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, check_finite, onto, part_of
from deeppruning.graph.proof.twin import seeded
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.memory import CANDIDATES, THOROUGH, Density
from deeppruning.refitting.probing import FEWEST, Probe, probe
from deeppruning.refitting.projections import projections_called
from deeppruning.refitting.readers import LAYERS
from deeppruning.refitting.recorder import Recorder
from deeppruning.refitting.records import LayerRecord
from deeppruning.system.memory_format import laid_out, memory_format_for

MEMORY = 8 * 10**9  # bytes that a refit may take beside its inputs
MOST_NUMBERS = 2**22  # kept of each output


@dataclass
class Reference:
    """The original on a batch of inputs; `refit` compares thin networks with it."""

    model: nn.Module
    parts: list[Call]  # the inputs, in parts that run one after another
    rows: list[slice]  # the inputs of each part
    density: Density
    memory_format: torch.memory_format = torch.contiguous_format  # in which they run
    needed: int = FEWEST  # inputs that would give every layer an equation for each of its unknowns
    layers: dict[str, LayerRecord] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # layers that cannot be refitted, with the reason
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # mean, variance of their inputs
    means: dict[str, Tensor] = field(default_factory=dict)  # of the answers of each layer or norm
    called: frozenset[str] = frozenset()  # modules that ran as such; others are read by someone else
    outputs: list[list[Tensor]] = field(default_factory=list)  # of each part, at some places

    @classmethod
    def of(
        cls,
        graph: ChannelGraph,
        inputs: Any,
        *,
        seed: int = 0,
        device: str | None = None,
        memory: int = MEMORY,
        thorough: bool = False,
    ) -> Reference:
        """Run the original once on a batch of inputs: a tensor, a tuple of arguments or a dict of them.

        Without a device it runs on that of the network. `memory` in bytes limits how many inputs are used.
        `thorough` looks at more places of each input, for a network that is handed out.
        """
        model, call = _original_on(graph, as_call(inputs), device)
        with seeded(), projections_called(model):
            shown = probe(model, call)
            count = batch_size(call)
            if count < FEWEST:
                raise InputError(
                    f"refit needs at least {FEWEST} inputs to learn from, got {count}; give more "
                    f"({shown.needed} would give every layer an equation for each of its unknowns)"
                )
            density = THOROUGH if thorough else CANDIDATES
            count = shown.room(memory, count, density)
            parts = shown.parts(count)
            bounds = [count * part // parts for part in range(parts + 1)]
            rows = [slice(first, last) for first, last in pairwise(bounds)]
            memory_format = memory_format_for(model, *part_of(call, slice(2)))
            parts_of_call = [part_of(call, some) for some in rows]
            reference = cls(model, parts_of_call, rows, density, memory_format, shown.needed)
            generator = torch.Generator().manual_seed(seed)
            reference._record_run(Recorder(model, count, shown.readers, generator, density))
        return reference

    @property
    def device(self) -> torch.device:
        """Where the original was run, and where thin networks are refitted."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    @property
    def count(self) -> int:
        """The number of inputs."""
        return int(self.rows[-1].stop)

    def run(self, network: nn.Module, part: int) -> Any:
        """The outputs of a network for one part of the inputs."""
        args, kwargs = laid_out(self.parts[part], self.memory_format)
        return network(*args, **kwargs)

    def gap(self, thin: nn.Module) -> float:
        """The squared distance between the outputs of a thin network and those of the original."""
        with torch.no_grad():
            return sum(self.gap_of(self.run(thin, part), part) for part in range(len(self.parts)))

    def gap_of(self, outputs: Any, part: int) -> float:
        """The same for known outputs of one part of the inputs."""
        pairs = zip(_sampled_outputs(outputs), self.outputs[part], strict=True)
        return sum(float((values.double() - due.double()).square().sum()) for values, due in pairs)

    def _record_run(self, recorder: Recorder) -> None:
        """Run the original on all parts of the inputs and keep what the recorder saw."""
        handles, readers = recorder.watch(), recorder.readers
        try:
            for part, some in enumerate(self.rows):
                recorder.begin_part(some.stop - some.start)
                self.outputs.append(_sampled_outputs(self.run(self.model, part)))
        finally:
            for handle in handles:
                handle.remove()
        self.layers, self.left = recorder.layers(), recorder.left
        self.norms = {name: moments.result() for name, moments in recorder.norms.items()}
        self.means = recorder.means
        self.called = frozenset(readers.calls)
        self._leave_unsolvable(readers.calls)
        for name, record in self.layers.items():
            record.norm, record.gate = readers.norms.get(name), readers.gates.get(name)

    def _leave_unsolvable(self, calls: Mapping[str, int]) -> None:
        """Take out what one solution cannot serve."""
        shared = Counter(
            id(p) for module in self.model.modules() for p in module._parameters.values() if p is not None
        )
        for name, module in self.model.named_modules():
            count = calls.get(name, 0)
            if isinstance(module, _BatchNorm) and count > 1:
                self.norms.pop(name, None)
                self.left[name] = f"it is called {count} times"
            if not isinstance(module, LAYERS):
                continue
            own = module._parameters.get("weight")
            if count == 0:
                self.left[name] = "it was not called as a module in the run"
            elif count > 1:
                self.left[name] = f"it is called {count} times"
            elif own is None and name not in self.left:
                self.left[name] = "its weight is computed from other parameters"
            elif own is not None and shared[id(own)] > 1:
                self.left[name] = "it shares its weight with another layer"
            if name in self.left:
                self.layers.pop(name, None)


def probe_original(graph: ChannelGraph, inputs: Any, device: str | None = None) -> Probe:
    """What a run of the original on two of the inputs shows."""
    model, call = _original_on(graph, part_of(as_call(inputs), slice(2)), device)
    with seeded(), projections_called(model):
        return probe(model, call)


def _original_on(graph: ChannelGraph, call: Call, device: str | None) -> tuple[nn.Module, Call]:
    """The original and the inputs on a device, or on that of the network."""
    model = graph.prune(graph.full_genome()).eval()
    if device is not None:
        model.to(device)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    call = onto(call, parameter.device, parameter.dtype)
    check_finite(call)
    return model, call


def _sampled_outputs(outputs: Any) -> list[Tensor]:
    """An even sample of each output: whole segmentation maps would fill the memory."""
    flat = [tensor.flatten() for tensor in tensors_in(outputs) if tensor.is_floating_point()]
    return [tensor[:: -(-len(tensor) // MOST_NUMBERS) or 1].clone() for tensor in flat]
