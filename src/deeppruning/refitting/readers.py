"""Who reads a layer's answers: a batch norm alone, a sum with a tensor that was there before, a ReLU.

Where an answer is only ever added to another tensor, the layer can make up for what that tensor lacks. Where
only a ReLU reads it, values below zero need not be met. This is found by running the original once and
following who reads whom.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from deeppruning.graph.trace.flow import FlowRun
from deeppruning.graph.trace.follow import by_name, operation_name, tensors_in

LAYERS = (_ConvNd, nn.Linear)
Content = tuple[int, frozenset[int]]  # a piece of memory and who had written to it by then
View = tuple[Content, tuple[int, ...], tuple[Any, ...]]  # how a tensor lies in it: shape, strides and offset


@dataclass(frozen=True)
class Anchor:
    """Where a tensor is available in any copy of the network: as the input or output of a module.

    A module without parameters may lie between it and the sum, as in a shortcut that pads.
    """

    module: str
    into: bool
    through: str | None = None

    def hold(self, modules: Mapping[str, nn.Module], keep: Callable[[Tensor], None]) -> list[RemovableHandle]:
        """Pass the tensor to `keep` whenever the network of these modules runs."""
        module, between = modules.get(self.module), modules.get(self.through or "")
        if module is None or (self.through and between is None):
            return []

        def take(value: Any) -> None:
            if isinstance(value, Tensor):
                # The forward method alone: hooks are for the run itself.
                keep(between.forward(value) if self.through and between is not None else value)

        if self.into:
            return [module.register_forward_pre_hook(lambda m, inputs: take(inputs[0] if inputs else None))]
        return [module.register_forward_hook(lambda m, inputs, output: take(output))]


@dataclass(frozen=True)
class Gate:
    """An activation that passes values between two limits and answers with the limit beyond them."""

    low: float
    high: float = math.inf


@dataclass(frozen=True)
class Readers:
    """What one run shows about the readers of layers."""

    calls: dict[str, int]  # how often each module is called
    norms: dict[str, str]  # layer -> the batch norm that alone reads it
    sums: dict[str, Anchor]  # layer with answers, behind their norm if any, that are only added -> to what
    gates: dict[str, Gate]  # layer -> what alone reads its answers, or the sum, behind their norm if any


@dataclass(frozen=True)
class _Answer:
    layer: str
    start: int  # the first operation of the layer's call
    content: Content
    norm: str = ""
    layer_content: Content | None = None  # of a norm: what it reads


class ReaderRun(FlowRun):
    """Runs the original and finds the readers of its layers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.plain = {name for name, each in model.named_modules() if next(each.parameters(), None) is None}
        self.uses: Counter[Content] = Counter()  # operations that read it
        self.anchors: dict[View, tuple[Anchor, int]] = {}  # where a tensor is first seen, and when
        self.made: dict[View, tuple[str, View]] = {}  # output of a module without parameters -> module, input
        self.answers: dict[View, _Answer] = {}
        self.chains: list[_Answer] = []
        self.sums: list[tuple[_Answer, Anchor]] = []
        self.totals: dict[View, list[str]] = {}  # a sum -> the layers whose answers are in it
        self.gated: dict[View, Gate] = {}  # what an activation reads

    def find(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Readers:
        """Run the network on these inputs and return the readers of its layers."""
        for tensor in tensors_in(self.run(model, args, kwargs)):
            self.uses[self._view_of(tensor)[0]] += 1  # to return a tensor is a use as well
        calls = {name: len(listed) for name, listed in self.calls.items()}
        norms = {
            chain.layer: chain.norm
            for chain in self.chains
            if self._is_read_once(chain.layer_content) and calls[chain.norm] == 1 == calls[chain.layer]
        }
        sums = {}
        for answer, anchor in self.sums:
            once = all(calls[name] == 1 for name in (answer.layer, answer.norm or "", anchor.module) if name)
            once = once and (not anchor.through or calls[anchor.through] == 1)
            alone = self._is_read_once(answer.content) and self._is_read_once(answer.layer_content)
            if once and alone and answer.norm == norms.get(answer.layer, ""):
                sums[answer.layer] = anchor
        return Readers(calls, norms, sums, self._gates_of_layers(calls, norms, sums))

    def _gates_of_layers(
        self, calls: Mapping[str, int], norms: Mapping[str, str], sums: Mapping[str, Anchor]
    ) -> dict[str, Gate]:
        """The ReLU that alone reads each layer's answer, or the sum it is in."""
        gates = {}
        for view, gate in self.gated.items():
            if not self._is_read_once(view[0]):
                continue
            answer = self.answers.get(view)
            if answer is not None and calls[answer.layer] == 1 and answer.norm == norms.get(answer.layer, ""):
                gates[answer.layer] = gate
            gates |= {layer: gate for layer in self.totals.get(view, ()) if layer in sums}
        return gates

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Count what an operation reads, and note sums of two tensors of one shape."""
        for tensor in tensors_in((args, kwargs)):
            self.uses[self._view_of(tensor)[0]] += 1
        gate = _gate_of_operation(func, args, kwargs)
        if gate is not None:
            self.gated[self._view_of(args[0])] = gate
        layers: list[str] = []
        if operation_name(func) == "add" and len(args) == 2 and not kwargs:
            left, right = args
            if isinstance(right, Tensor) and left.shape == right.shape:
                layers = [*self._summed_layer(left, right), *self._summed_layer(right, left)]
        result = super().operation(func, args, kwargs)
        if layers:
            self.totals[self._view_of(result)] = layers
        return result

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A submodule starts: its input can be had here."""
        super().enter(module, inputs)
        if id(module) in self.names and inputs and isinstance(inputs[0], Tensor):
            self._see_anchor(inputs[0], Anchor(self.stack[-1][0], into=True))

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends: its output can be had here, and may be a layer's answer."""
        name, start = self.stack[-1][0], self.starts[-1]
        if id(module) in self.names and isinstance(output, Tensor):
            self._see_anchor(output, Anchor(name, into=False))
            if inputs and isinstance(inputs[0], Tensor):
                self._note_module(
                    name, module, start, inputs, self._view_of(inputs[0]), self._view_of(output)
                )
        return super().leave(module, inputs, output)

    def _note_module(
        self, name: str, module: nn.Module, start: int, inputs: tuple[Any, ...], read: View, made: View
    ) -> None:
        """Note the answer of a layer, or of the batch norm that reads one."""
        if name in self.plain and len(inputs) == 1 and made != read:
            self.made[made] = (name, read)
        if isinstance(module, LAYERS):
            self.answers[made] = _Answer(name, start, made[0])
            self.uses[made[0]] = 0  # what the layer itself does with it does not count
        layer = self.answers.get(read) if isinstance(module, _BatchNorm) else None
        if layer is not None and not layer.norm:
            self.answers[made] = replace(layer, norm=name, content=made[0], layer_content=read[0])
            self.chains.append(self.answers[made])
            self.uses[made[0]] = 0

    def _summed_layer(self, mine: Tensor, other: Tensor) -> list[str]:
        """The layer that `mine` is the answer of, if `other` is available before it starts."""
        answer = self.answers.get(self._view_of(mine))
        anchor = self._anchor_before(self._view_of(other), answer.start) if answer is not None else None
        if answer is not None and anchor is not None and mine is not other:
            self.sums.append((answer, anchor))
            return [answer.layer]
        return []

    def _anchor_before(self, view: View, start: int) -> Anchor | None:
        """Where the other side of a sum is available before a layer starts."""
        anchor, seen = self.anchors.get(view, (None, 0))
        if anchor is None or seen <= start:
            return anchor
        module, source = self.made.get(view, ("", view))
        anchor, seen = self.anchors.get(source, (None, 0))
        if not module or anchor is None or seen > start:
            return None
        return replace(anchor, through=module)

    def _see_anchor(self, tensor: Tensor, anchor: Anchor) -> None:
        self.anchors.setdefault(self._view_of(tensor), (anchor, len(self.reads)))

    def _view_of(self, tensor: Tensor) -> View:
        memory = self.memory(tensor)
        layout = (tensor.stride(), tensor.storage_offset()) if tensor.layout == torch.strided else ()
        return (id(memory), frozenset(memory.writers)), tuple(tensor.shape), layout

    def _is_read_once(self, content: Content | None) -> bool:
        return content is None or self.uses[content] == 1


def _gate_of_operation(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Gate | None:
    """The limits of a ReLU, ReLU6 or clamp; None for other operations and for limits that are tensors."""
    name, given = operation_name(func), by_name(func, args, kwargs)
    if name == "relu":
        return Gate(0.0)
    if name == "hardtanh":
        low, high = given.get("min_val", -1.0), given.get("max_val", 1.0)
    elif name in ("clamp", "clamp_min"):
        low, high = given.get("min"), given.get("max")
        low, high = -math.inf if low is None else low, math.inf if high is None else high
    else:
        return None
    return None if isinstance(low, Tensor) or isinstance(high, Tensor) else Gate(float(low), float(high))
