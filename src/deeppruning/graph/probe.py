"""The probe: run a thin network beside the silenced full one and find the first operation that differs.

A cut must equal silence at every operation, in shape and in value. Where it does not, the forward
code has a size or an order written into it that labels cannot see (`view(-1, 512)`, a literal pad).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from deeppruning.graph.call import Call
from deeppruning.graph.labels import Channels, Constant, Origin, Payload
from deeppruning.graph.operations import LAYOUT
from deeppruning.graph.silence import Silencer
from deeppruning.graph.trace import follow_modules

SAME = {"_unsafe_view": "view", "reshape": "view"}


@dataclass
class Step:
    """One compared operation: its name, the shapes it gives, and a fingerprint of the values."""

    name: str
    record: int  # its place in the trace of the full network
    shapes: list[tuple[int, ...] | None] = field(default_factory=list)  # None: takes whatever size comes
    prints: list[NDArray[np.float64] | None] = field(default_factory=list)
    axes: list[int | None] = field(default_factory=list)


def fingerprint(tensor: Tensor, axis: int | None) -> NDArray[np.float64] | None:
    """Sums over all but the channel axis, or a weighted sum of everything; None where not comparable."""
    if not tensor.is_floating_point():
        return None
    values = tensor.detach().double()
    if axis is None:
        flat = values.reshape(-1)
        weights = torch.cos(torch.arange(len(flat), dtype=torch.float64, device=flat.device))
        return np.asarray([float((flat * weights).sum())])
    others = [dim for dim in range(values.ndim) if dim != axis]
    sums = values.sum(dim=others) if others else values
    return np.asarray(sums.cpu().numpy())


class SilentSteps(Silencer):
    """Silences the full network and writes down what every operation of a thin one must give."""

    def __init__(self, kept: NDArray[np.bool_], *, compare_values: bool) -> None:
        super().__init__(kept)
        self.compare_values = compare_values
        self.steps: list[Step] = []

    def __call__(self, call: Call, payloads: list[Payload]) -> None:
        super().__call__(call, payloads)
        if call.name in LAYOUT:
            return
        step = Step(SAME.get(call.name, call.name), int(str(call.owner[1])))
        for tensor, payload in zip(call.outputs, payloads, strict=True):
            if isinstance(payload, (Origin, Constant)):
                step.shapes.append(None)
                step.prints.append(None)
                step.axes.append(None)
                continue
            shape = list(tensor.shape)
            axis = payload.axis if isinstance(payload, Channels) else None
            prints = fingerprint(tensor, axis) if self.compare_values else None
            if isinstance(payload, Channels):
                stay = self.kept[payload.ids]
                shape[payload.axis] = int(stay.sum())
                prints = prints[stay] if prints is not None else None
            step.shapes.append(tuple(shape))
            step.prints.append(prints)
            step.axes.append(axis)
        self.steps.append(step)


class Mismatch(Exception):
    """Raised inside a thin run at the first operation that does not do what it should."""


class ThinRun(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs a thin network and stops at the first step that differs from the expected ones."""

    def __init__(self, expected: list[Step], names: Mapping[int, str], detached: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.expected = expected
        self.names = names
        self.detached = detached
        self.inside_detached = 0
        self.position = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if outputs and not self.inside_detached and name not in LAYOUT:
            self.compare(SAME.get(name, name), outputs)
        return result

    def compare(self, name: str, outputs: list[Tensor]) -> None:
        """Check one operation against the step that is due."""
        if self.position >= len(self.expected):
            raise Mismatch
        step = self.expected[self.position]
        if step.name != name or len(step.shapes) != len(outputs):
            raise Mismatch
        if any(shape not in (None, tensor.shape) for shape, tensor in zip(step.shapes, outputs, strict=True)):
            raise Mismatch
        for tensor, expected, axis in zip(outputs, step.prints, step.axes, strict=True):
            if expected is not None:
                found = fingerprint(tensor, axis)
                if found is None or not close(found, expected, tensor.dtype):
                    raise Mismatch
        self.position += 1

    def enter(self, module: nn.Module, inputs: Any) -> None:
        """A submodule starts."""
        self.inside_detached += self.names.get(id(module), "") in self.detached

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A submodule ends; a wrapped one counts as one operation."""
        if self.names.get(id(module), "") in self.detached:
            self.inside_detached -= 1
            if not self.inside_detached:
                with _disable_current_modes():  # what happens here is no operation of the network
                    self.compare("module", [output])


def close(found: NDArray[np.float64], expected: NDArray[np.float64], dtype: torch.dtype) -> bool:
    """Equal up to rounding in the precision the network ran in."""
    tolerance = 1e-7 if dtype == torch.float64 else 2e-3
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    return found.shape == expected.shape and bool(
        np.abs(found - expected).max(initial=0.0) <= tolerance * scale
    )


@dataclass(frozen=True)
class Fault:
    """Where a thin network first went wrong, and the model's own error if it raised one."""

    record: int
    error: str | None


def find_fault(
    thin: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    expected: list[Step],
    detached: frozenset[str],
) -> Fault | None:
    """The first operation of the thin network that differs from the silenced one, None if none does."""
    run = ThinRun(expected, {id(module): name for name, module in thin.named_modules()}, detached)
    error = None
    try:
        with torch.no_grad(), follow_modules(run.enter, run.leave), run:
            thin(*args, **kwargs)
        if run.position == len(expected):
            return None
    except Mismatch:
        pass
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    step = expected[min(run.position, len(expected) - 1)]
    return Fault(step.record, error)
