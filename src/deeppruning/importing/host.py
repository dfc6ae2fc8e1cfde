"""ONNX operations on sizes: numpy arrays of Python integers, which never become tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from deeppruning.importing.moving import bounded
from deeppruning.importing.values import Host, OnnxFunction, dtype_of, integers, on_host

HOST: dict[str, OnnxFunction] = {}


def _host_cast(value: Host, to: int, **_: Any) -> Host:
    """Sizes stay what they are; only a fraction becomes whole, and only a truth value is made one."""
    kind = dtype_of(to)
    if kind == torch.bool:
        return np.asarray(value).astype(bool)
    flat = np.asarray(value, dtype=object).reshape(-1)
    whole = [int(size) if isinstance(size, float) and not kind.is_floating_point else size for size in flat]
    return on_host(whole).reshape(np.shape(value))


def _host_divide(left: Host, right: Host) -> Any:
    """Division of sizes, whole if all of them are."""
    fraction = any(isinstance(number, float) for number in (*np.ravel(left), *np.ravel(right)))
    return left / right if fraction else left // right


def _host_slice(value: Host, starts: Host, ends: Host, axes: Any = None, steps: Any = None) -> Host:
    """A slice of an array of sizes."""
    step = 1 if steps is None else integers(steps)[0]
    return np.asarray(value)[bounded(integers(starts)[0], integers(ends)[0], step)]


def _host_full(shape: Host, value: Any) -> Host | None:
    """A list of one whole number; anything else is data."""
    number = np.zeros(1) if value is None else np.asarray(value)
    if number.dtype.kind != "i" or np.size(shape) != 1 or integers(shape)[0] > 16:
        return None
    return np.full(integers(shape), int(number.reshape(-1)[0]), dtype=object)


HOST.update(
    Add=lambda a, b: np.asarray(a) + b,
    Sub=lambda a, b: np.asarray(a) - b,
    Mul=lambda a, b: np.asarray(a) * b,
    Div=lambda a, b: _host_divide(np.asarray(a), np.asarray(b)),
    Mod=lambda a, b, **_: np.asarray(a) % b,
    Neg=lambda a: -np.asarray(a),
    Min=lambda *values: np.minimum.reduce([np.asarray(value, dtype=object) for value in values]),
    Max=lambda *values: np.maximum.reduce([np.asarray(value, dtype=object) for value in values]),
    Equal=lambda a, b: np.asarray(a) == b,
    Greater=lambda a, b: np.asarray(a) > b,
    GreaterOrEqual=lambda a, b: np.asarray(a) >= b,
    Less=lambda a, b: np.asarray(a) < b,
    LessOrEqual=lambda a, b: np.asarray(a) <= b,
    And=lambda a, b: np.logical_and(a, b).astype(bool),
    Or=lambda a, b: np.logical_or(a, b).astype(bool),
    Not=lambda a: np.logical_not(a).astype(bool),
    Where=lambda condition, yes, no: np.where(np.asarray(condition).astype(bool), yes, no),
    Floor=lambda a: np.vectorize(math.floor, otypes=[object])(a),
    Ceil=lambda a: np.vectorize(math.ceil, otypes=[object])(a),
    Cast=_host_cast,
    Identity=lambda value: value,
    Concat=lambda *values, axis=0: np.concatenate([np.reshape(value, -1).astype(object) for value in values]),
    Gather=lambda value, indices, axis=0: np.asarray(value)[np.asarray(indices).astype(int)],
    Slice=_host_slice,
    Squeeze=lambda value, axes=None: np.asarray(value).reshape(() if np.asarray(value).size == 1 else -1),
    Unsqueeze=lambda value, axes: np.asarray(value).reshape(-1) if np.ndim(value) == 0 else None,
    Reshape=lambda value, shape, **_: (
        np.asarray(value).reshape(-1 if np.size(shape) else ()) if np.size(shape) <= 1 else None
    ),
    ReduceProd=lambda value, axes=None, keepdims=1, **_: np.array(
        [math.prod(integers(value))], dtype=object
    ).reshape(-1 if keepdims else ()),
    Shape=lambda value, start=0, end=None: np.array(list(np.asarray(value).shape)[start:end], dtype=object),
    ConstantOfShape=lambda shape, value=None: _host_full(shape, value),
    Expand=lambda value, shape: np.broadcast_to(value, integers(shape)) if np.size(shape) == 1 else None,
)  # fmt: skip
