"""Modules of networks of ONNX files: operations without weights, and sizes that follow the tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deeppruning.importing.operations import run
from deeppruning.importing.sizes import Part


class Operation(nn.Module):
    """An operation without weights; constant tensors among its inputs are its parameters or buffers."""

    def __init__(self, op: str, attributes: dict[str, Any], constants: dict[int, Any]) -> None:
        super().__init__()
        self.op = op
        self.attributes = attributes
        self.fixed: dict[int, Any] = {}
        for place, value in constants.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                self.register_parameter(f"constant_{place}", nn.Parameter(value))
            elif isinstance(value, Tensor):
                self.register_buffer(f"constant_{place}", value)
            else:
                self.fixed[place] = value
        self.places = sorted(constants)

    def extra_repr(self) -> str:
        return self.op

    def forward(self, *values: Any) -> Any:
        """Run on the computed inputs, with the constant ones in their places."""
        rest = iter(values)
        inputs = []
        for place in range(len(values) + len(self.places)):
            if place not in self.places:
                inputs.append(next(rest))
            else:
                inputs.append(
                    self.fixed[place] if place in self.fixed else getattr(self, f"constant_{place}")
                )
        return run(self.op, inputs, self.attributes)


class Reshape(nn.Module):
    """A reshape whose sizes follow those of its input; `written` are those of the file, if it has them."""

    def __init__(self, parts: Sequence[Part], written: Sequence[int] | None = None) -> None:
        super().__init__()
        self.parts = tuple(parts)
        self.written = None if written is None else tuple(written)

    def forward(self, value: Tensor) -> Tensor:
        """Reshape."""
        return value.reshape([part.of(value.shape) for part in self.parts])


class Split(nn.Module):
    """Pieces along an axis: a number of equal ones, or of written sizes."""

    def __init__(self, axis: int, *, pieces: int | None = None, sizes: Sequence[int] = ()) -> None:
        super().__init__()
        self.axis, self.pieces, self.sizes = axis, pieces, list(sizes)

    def forward(self, value: Tensor) -> tuple[Tensor, ...]:
        """Split."""
        if self.pieces is None:
            return tuple(torch.split(value, self.sizes, self.axis))
        return tuple(value.chunk(self.pieces, self.axis))


class Pieces(nn.Module):
    """A slice that is made of whole pieces of equal size."""

    def __init__(self, axis: int, first: int, end: int, of: int) -> None:
        super().__init__()
        self.axis, self.first, self.end, self.of = axis, first, end, of

    def forward(self, value: Tensor) -> Tensor:
        """Slice."""
        width = value.shape[self.axis] // self.of
        return value.narrow(self.axis, self.first * width, (self.end - self.first) * width)


class Expand(nn.Module):
    """Broadcast to sizes of which only those that the input lacks are written."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)

    def forward(self, value: Tensor) -> Tensor:
        """Broadcast."""
        return value.expand(self.sizes)


class Padding(nn.Module):
    """Padding before a window or cropping behind one, with zeros unless said otherwise."""

    value = 0.0


def layer_of(module: nn.Module) -> nn.Module:
    """The layer of a node that became two modules, of which the other pads or crops."""
    if type(module) is nn.Sequential and any(isinstance(part, Padding) for part in module):
        return next(part for part in module if not isinstance(part, Padding))
    return module


class SamePad(Padding):
    """Padding by which the result has the size of the input divided by the stride, as TensorFlow pads."""

    def __init__(
        self, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], *, upper: bool
    ) -> None:
        super().__init__()
        self.windows = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]
        self.stride, self.upper = list(stride), upper

    def forward(self, value: Tensor) -> Tensor:
        """Pad."""
        amounts = []
        for size, window, step in zip(value.shape[2:], self.windows, self.stride, strict=True):
            total = max((math.ceil(size / step) - 1) * step + window - size, 0)
            small, large = total // 2, total - total // 2
            amounts.append((small, large) if self.upper else (large, small))
        return F.pad(value, [amount for pair in reversed(amounts) for amount in pair], value=self.value)


class ConstantPad(Padding):
    """Padding that differs between the two ends of an axis; what is negative is cropped."""

    def __init__(self, amounts: Sequence[int]) -> None:
        super().__init__()
        self.amounts = list(amounts)

    def forward(self, value: Tensor) -> Tensor:
        return F.pad(value, self.amounts, value=self.value)


class AverageInside(nn.Module):
    """The average of a window over what lies inside the input: padding of any form is not counted."""

    def __init__(self, before: Padding, pool: nn.Module) -> None:
        super().__init__()
        self.before, self.pool = before, pool

    def forward(self, value: Tensor) -> Tensor:
        """Pad with zeros, average, and divide by the share of each window that is inside."""
        inside = value.new_ones([1, 1, *value.shape[2:]])
        result: Tensor = self.pool(self.before(value)) / self.pool(self.before(inside))
        return result
