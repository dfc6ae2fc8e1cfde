"""ONNX operations that read or write at places which other tensors name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from deeppruning.errors import InputError
from deeppruning.importing.values import as_tensor, operation, scalar


@operation("Gather")
def gather(given: Any, indices: Any, axis: int = 0) -> Tensor:
    """Entries along an axis; indices may have any shape."""
    value = as_tensor(given)
    if not isinstance(indices, Tensor):
        places = np.asarray(indices)
        if places.ndim == 0:
            return value.select(axis, int(scalar(places)))
        indices = as_tensor(places, value)
    indices = torch.where(indices < 0, indices + value.shape[axis], indices)
    taken = torch.index_select(value, axis, indices.reshape(-1))
    axis = axis % value.dim()
    return taken.reshape(*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])


@operation("GatherElements")
def gather_elements(given: Any, indices: Any, axis: int = 0) -> Tensor:
    """One entry for each index."""
    value = as_tensor(given)
    return torch.gather(value, axis, _positive(as_tensor(indices, value), value.shape[axis]))


@operation("GatherND")
def gather_nd(given: Any, indices: Any, batch_dims: int = 0) -> Tensor:
    """Entries or slices at index tuples."""
    value = as_tensor(given)
    if batch_dims:
        raise InputError(f"it has {batch_dims} batch axes")
    return value[_tuples(value, indices)]


@operation("ScatterND")
def scatter_nd(given: Any, indices: Any, updates: Any, reduction: str = "none") -> Tensor:
    """A copy with other entries or slices at index tuples: `y[..., 0:2] = boxes` as it is exported."""
    value = as_tensor(given)
    if reduction != "none":
        raise InputError(f"it combines entries ({reduction})")
    return value.index_put(_tuples(value, indices), as_tensor(updates, value).to(value.dtype))


@operation("ScatterElements")
def scatter_elements(
    given: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """A copy in which one entry for each index is another."""
    value = as_tensor(given)
    if reduction != "none":
        raise InputError(f"it combines entries ({reduction})")
    places = _positive(as_tensor(indices, value), value.shape[axis])
    return value.scatter(axis, places, as_tensor(updates, value).to(value.dtype).expand_as(places))


@operation("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, axis: int = -1) -> Tensor:
    """A new axis with one value at each index and another elsewhere."""
    count, (off, on) = int(scalar(depth)), as_tensor(values).reshape(-1)
    places = _positive(as_tensor(indices).to(torch.int64), count)
    axis = axis % (places.dim() + 1)
    shape = [1] * (places.dim() + 1)
    shape[axis] = count
    numbers = torch.arange(count, device=places.device).reshape(shape)
    return torch.where(places.unsqueeze(axis) == numbers, on, off)


def _positive(indices: Tensor, size: int) -> Tensor:
    """ONNX indices counted from the front."""
    return torch.where(indices < 0, indices + size, indices)


def _tuples(value: Tensor, indices: Any) -> tuple[Tensor, ...]:
    """The last axis of the indices as one index tensor for each axis of the value that it names."""
    return tuple(
        _positive(each, value.shape[axis]) for axis, each in enumerate(as_tensor(indices, value).unbind(-1))
    )
