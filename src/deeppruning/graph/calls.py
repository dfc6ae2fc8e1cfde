"""The inputs of a network as arguments of a call: a tensor, a tuple or a dict of keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from deeppruning.errors import InputError
from deeppruning.system.device import inputs_at_once
from deeppruning.system.memory_format import laid_out, memory_format_for

Call = tuple[tuple[Any, ...], dict[str, Any]]


def as_call(inputs: Any, name: str = "inputs") -> Call:
    """Positional and keyword arguments; `name` is what an error message calls the inputs."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    raise InputError(
        f"{name} must be a tensor, a tuple of arguments or a dict of keyword arguments, "
        f"got {type(inputs).__name__}"
    )


def batch_size(call: Call) -> int:
    """The number of inputs in a call: the first extent of its first tensor, however deeply nested.

    >>> batch_size(as_call({"x": [torch.zeros(3, 2)]}))
    3
    """
    for value in tree_leaves(call):
        if isinstance(value, Tensor) and value.dim():
            return int(value.shape[0])
    raise InputError("inputs with a batch are needed: a tensor, a tuple or a dict of tensors")


def part_of(call: Call, rows: slice) -> Call:
    """The same call with some of its inputs; tensors with another first extent belong to all of them."""
    count = batch_size(call)

    def part(value: Any) -> Any:
        in_batch = isinstance(value, Tensor) and value.dim() and value.shape[0] == count
        return value[rows] if in_batch else value

    return _mapped(part, call)


def portions(call: Call, device: torch.device | str = "cpu") -> list[slice]:
    """The inputs of a call, as many at once as run fast, where nothing depends on how many do.

    >>> portions(as_call(torch.zeros(20, 3, 224, 224)))
    [slice(0, 16, None), slice(16, 20, None)]
    """
    count = batch_size(call)
    tensors = [value for value in tree_leaves(call) if isinstance(value, Tensor)]
    in_batch = [tensor for tensor in tensors if tensor.dim() and len(tensor) == count]
    at_once = inputs_at_once(sum(tensor.nbytes for tensor in in_batch) // max(count, 1), device)
    return [slice(start, min(start + at_once, count)) for start in range(0, max(count, 1), at_once)]


def run_in_portions(network: nn.Module, call: Call, device: torch.device | str = "cpu") -> Any:
    """The outputs of a network, which is on the device, for all inputs of a call; no gradients.

    Nested outputs are joined leaf by leaf. Where they cannot be, all inputs run at once.
    """

    memory_format = memory_format_for(network, *onto(part_of(call, slice(2)), device))

    def run(rows: slice) -> Any:
        args, kwargs = laid_out(onto(part_of(call, rows), device), memory_format)
        return network(*args, **kwargs)

    rows = portions(call, device)
    with torch.no_grad():
        outputs = [run(rows[0])]
        if len(rows) == 1:
            return outputs[0]
        if not all(_has_entries(leaf, rows[0].stop) for leaf in tree_leaves(outputs[0])):
            return run(slice(None))
        outputs += [run(some) for some in rows[1:]]
        if len({_form(output) for output in outputs}) > 1:
            return run(slice(None))
        return tree_map(lambda *leaves: None if leaves[0] is None else torch.cat(leaves), *outputs)


def _has_entries(leaf: Any, count: int) -> bool:
    """Whether an output has one entry for each of so many inputs, or is missing."""
    return leaf is None or (isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == count)


def _form(outputs: Any) -> str:
    """How outputs are nested, and the extents of each beside the number of inputs."""
    return str(tree_map(lambda leaf: None if leaf is None else tuple(leaf.shape[1:]), outputs))


def onto(call: Call, device: torch.device | str, precision: torch.dtype | None = None) -> Call:
    """The same call with its tensors on a device, those of floating point in a precision."""

    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(device, precision if value.is_floating_point() else None)

    return _mapped(moved, call)


def in_precision(call: Call, precision: torch.dtype) -> Call:
    """The same call with its tensors of floating point in a precision, each on its device."""

    def rounded(value: Any) -> Any:
        return value.to(precision) if isinstance(value, Tensor) and value.is_floating_point() else value

    return _mapped(rounded, call)


def check_finite(call: Call) -> None:
    """Refuse inputs that contain NaN or infinity."""
    for value in tree_leaves(call):
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all()):
            raise InputError("the inputs contain NaN or infinity: remove these values")


def check_not_empty(call: Call) -> None:
    """Refuse an example that holds nothing: whatever is computed of it, two networks would seem to agree."""
    tensors = [value for value in tree_leaves(call) if isinstance(value, Tensor)]
    if tensors and not any(tensor.numel() for tensor in tensors):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise InputError(f"example_input is empty (shape {shapes}): give at least one input")


def _mapped(change: Callable[[Any], Any], call: Call) -> Call:
    """The same call with every leaf of its arguments changed."""
    args, kwargs = tree_map(change, call)
    return args, kwargs
