"""ONNX operations that move, repeat or leave out data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from deeppruning.importing.values import as_tensor, integers, operation, scalar


@operation("Squeeze")
def squeeze(value: Tensor, axes: Any = None) -> Tensor:
    """Without axes of size one."""
    return value.squeeze() if axes is None else value.squeeze(tuple(integers(axes)))


@operation("Unsqueeze")
def unsqueeze(value: Any, axes: Any) -> Tensor:
    """With new axes of size one."""
    tensor, places = as_tensor(value), integers(axes)
    rank = tensor.dim() + len(places)
    for axis in sorted(place % rank for place in places):
        tensor = tensor.unsqueeze(axis)
    return tensor


@operation("Flatten")
def flatten(value: Tensor, axis: int = 1) -> Tensor:
    """A matrix: the axes before and from one on."""
    axis = axis % value.dim() if axis < 0 else axis
    return value.flatten(1) if axis == 1 else value.reshape(math.prod(value.shape[:axis]), -1)


@operation("Reshape")
def reshape(value: Tensor, shape: Any, allowzero: int = 0) -> Tensor:
    """Other sizes, where 0 stands for the size that the input has there."""
    sizes = integers(shape)
    return value.reshape(
        [value.shape[place] if size == 0 and not allowzero else size for place, size in enumerate(sizes)]
    )


@operation("Expand")
def expand(value: Any, shape: Any) -> Tensor:
    """Broadcast in both directions."""
    tensor = as_tensor(value)
    sizes = torch.broadcast_shapes(tensor.shape, tuple(integers(shape)))  # type: ignore[no-untyped-call]
    return tensor.expand(sizes)


@operation("Split")
def split(value: Tensor, sizes: Any = None, axis: int = 0, **_: Any) -> tuple[Tensor, ...]:
    """Pieces of computed sizes."""
    return tuple(torch.split(value, integers(sizes), axis))


@operation("Slice")
def slice_(value: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """A part along some axes; backward steps are turned around."""
    first, last = integers(starts), integers(ends)
    dims = list(range(len(first))) if axes is None else integers(axes)
    pace = [1] * len(first) if steps is None else integers(steps)
    for dim, start, end, step in zip(dims, first, last, pace, strict=True):
        if step < 0:
            places = list(range(value.shape[dim]))[bounded(start, end, step)]
            value = value.index_select(dim, torch.tensor(places, device=value.device))
        else:
            before = (slice(None),) * (dim % value.dim())
            part = (*before, slice(start, end if end < 1 << 31 else None, step))
            value = value[part]
    return value


def bounded(start: int, end: int, step: int) -> slice:
    """A slice; ONNX writes a very small number for the beginning of what is run backwards."""
    return slice(start, None if end < -(1 << 31) else end, step)


@operation("Pad")
def pad(
    value: Tensor, pads: Any, constant: Any = None, axes: Any = None, mode: str = "constant", **old: Any
) -> Tensor:
    """Around some axes; torch counts them from the last."""
    amounts = integers(pads)
    dims = list(range(value.dim())) if axes is None else [axis % value.dim() for axis in integers(axes)]
    around = {dim: (amounts[place], amounts[place + len(dims)]) for place, dim in enumerate(dims)}
    flat = [amount for dim in reversed(range(value.dim())) for amount in around.get(dim, (0, 0))]
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    number = old.get("number", 0.0) if constant is None else scalar(constant)
    if mode == "constant":
        return F.pad(value, flat, value=float(number))
    return F.pad(value, flat, mode={"edge": "replicate", "wrap": "circular"}.get(mode, mode))


@operation("Tile")
def tile(value: Tensor, repeats: Any) -> Tensor:
    """Repeated along each axis."""
    return value.repeat(integers(repeats))


@operation("ConstantOfShape")
def constant_of_shape(shape: Any, value: Any = None) -> Tensor:
    """One number everywhere."""
    number = torch.zeros(1) if value is None else torch.as_tensor(np.array(value))
    return torch.full(integers(shape), number.reshape(-1)[0].item(), dtype=number.dtype)


@operation("Range")
def range_(start: Any, limit: Any, delta: Any) -> Tensor:
    """Numbers at equal distances."""
    return torch.arange(scalar(start), scalar(limit), scalar(delta))


@operation("DepthToSpace")
def depth_to_space(value: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become pixels; torch has the order CRD."""
    if mode == "CRD":
        return F.pixel_shuffle(value, blocksize)
    batch, channels, height, width = value.shape
    depth = channels // blocksize**2
    blocks = value.reshape(batch, blocksize, blocksize, depth, height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(batch, depth, height * blocksize, width * blocksize)


@operation("SpaceToDepth")
def space_to_depth(value: Tensor, blocksize: int) -> Tensor:
    """Pixels become channels, by blocks first."""
    batch, channels, height, width = value.shape
    blocks = value.reshape(batch, channels, height // blocksize, blocksize, width // blocksize, blocksize)
    deep = blocks.permute(0, 3, 5, 1, 2, 4)
    return deep.reshape(batch, channels * blocksize**2, height // blocksize, width // blocksize)


@operation("GridSample")
def grid_sample(value: Tensor, grid: Tensor, align_corners: int = 0, mode: str = "bilinear",
                padding_mode: str = "zeros") -> Tensor:  # fmt: skip
    """Sampled at given places."""
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(value, grid, kind, padding_mode, bool(align_corners))
