"""Values of ONNX operations, and the table that operations are entered in.

A value is a tensor, or on the host: sizes read from tensors and what is computed of them are numpy arrays of
Python integers, so that no size is ever taken from the contents of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.errors import InputError

Host: TypeAlias = NDArray[Any]
OnnxFunction: TypeAlias = Callable[..., Any]
OPERATIONS: dict[str, OnnxFunction] = {}


def operation(*names: str) -> Callable[[OnnxFunction], OnnxFunction]:
    """Enter a function under the names of ONNX."""

    def enter(function: OnnxFunction) -> OnnxFunction:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return enter


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """A value of either kind as a tensor, on the device of another one."""
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    if array.dtype == object:
        array = array.astype(np.int64)
    return torch.as_tensor(array, device=None if like is None else like.device)


def on_host(sizes: Sequence[Any]) -> Host:
    """Sizes as an array of objects: during an export they are symbols, which numpy must not convert."""
    array = np.empty(len(sizes), dtype=object)
    for place, size in enumerate(sizes):
        array[place] = size
    return array


def integers(value: Any) -> list[int]:
    """Sizes, axes and positions, wherever they are kept."""
    if isinstance(value, Tensor):
        return [int(number) for number in value.flatten().tolist()]
    return list(np.asarray(value).reshape(-1))


def scalar(value: Any) -> Any:
    """A single number, out of whatever it is wrapped in."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.reshape(-1)[0].item() if value.dtype != object else value.reshape(-1)[0]
    return value


def dtype_of(code: int) -> torch.dtype:
    """The torch type of an ONNX type."""
    types = {
        1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64,
        9: torch.bool, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
    }  # fmt: skip
    if code not in types:
        raise InputError(f"tensors of ONNX type {code} are not supported")
    return types[code]
