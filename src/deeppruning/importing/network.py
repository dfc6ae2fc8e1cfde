"""The network that an ONNX file becomes: layers of torch, run in the order of the file's nodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.importing.file import Header, OnnxNode

ROUNDINGS = 16  # the rounding errors of two runtimes add up, and are not distributed alike


@dataclass(frozen=True)
class RunStep:
    """One module: the values it is given, the names of its results, and values that no later step needs."""

    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: OnnxNode  # that it was built from
    types: tuple[str, ...]  # of the node's inputs that are constant, as in the file; "" for the others
    shapes: tuple[tuple[int, ...], ...]  # likewise
    last_use_of: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Wiring:
    """How the modules are connected, and the file they came from; copies of a network share it."""

    steps: tuple[RunStep, ...]
    header: Header
    example: tuple[tuple[tuple[int, ...], torch.dtype], ...]  # of inputs that it was built with

    def __deepcopy__(self, memo: dict[int, Any]) -> Wiring:
        return self


class OnnxNetwork(nn.Module):
    """A network read from an ONNX file: layers of torch, named after the nodes, run in the file's order."""

    wiring: Wiring

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.input_names = tuple(inputs)
        self.output_names = tuple(outputs)
        self.given: dict[str, Tensor] = {}  # outputs that are constants

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """The outputs for inputs in the file's order or by name; a single output comes without a tuple."""
        values = self.named_inputs(*inputs, **named)
        for step in self.wiring.steps:
            self.run_step(step, values)
            for name in step.last_use_of:
                del values[name]
        outputs = tuple(values[name] for name in self.output_names)
        return outputs[0] if len(outputs) == 1 else outputs

    def named_inputs(self, *inputs: Tensor, **named: Tensor) -> dict[str, Any]:
        """The values that are there before the first step; half precision is computed in single."""
        values: dict[str, Any] = {**self.given, **dict(zip(self.input_names, inputs, strict=False)), **named}
        return {
            name: value.float() if isinstance(value, Tensor) and value.dtype == torch.float16 else value
            for name, value in values.items()
        }

    def run_step(self, step: RunStep, values: dict[str, Any]) -> None:
        """Run one module on values by name, and add its results to them."""
        results = self._modules[step.module](*(values[name] for name in step.inputs))  # type: ignore[misc]
        if len(step.outputs) == 1 and not isinstance(results, (tuple, list)):
            values[step.outputs[0]] = results
        else:
            values.update(zip(step.outputs, results, strict=False))

    def example_inputs(self) -> dict[str, Tensor]:
        """Random inputs of the shapes that the network was built with."""
        generator = torch.Generator().manual_seed(0)
        made = {}
        for name, (shape, kind) in zip(self.input_names, self.wiring.example, strict=True):
            whole = torch.rand(shape, generator=generator)
            made[name] = whole.to(kind) if kind.is_floating_point else whole.round().to(kind)
        return made


def rounding_of(network: OnnxNetwork, inputs: Mapping[str, Tensor]) -> float:
    """What the outputs may differ by in another order of computing: many times their own rounding errors.

    Those are the difference from double precision; 0 for a network that does not run in it.
    """
    twice = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    try:
        with torch.no_grad():
            pairs = zip(
                _listed(network(**inputs)), _listed(copy.deepcopy(network).double()(**twice)), strict=True
            )
            errors = [float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel()]
    except (RuntimeError, TypeError, AttributeError):  # a type is written into the file
        return 0.0
    return ROUNDINGS * max(errors, default=0.0)


def _listed(outputs: Any) -> tuple[Any, ...]:
    """Outputs as a tuple."""
    return outputs if isinstance(outputs, tuple) else (outputs,)
