"""One batch of inputs out of whatever a user holds: a batch, a Dataset, a DataLoader; labels are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.stream import ImageStream
from deeppruning.errors import InputError
from deeppruning.graph.calls import as_call, batch_size, part_of

LABELS = ("label", "labels", "target", "targets")  # of an entry that is a dict


def gather_inputs(inputs: Any, most: int) -> Any:
    """Inputs as one batch; of a Dataset at most so many entries, evenly spread, without their labels.

    Of a DataLoader and of an IterableDataset the first ones are taken.
    """
    if isinstance(inputs, (ImageSet, ImageStream)):
        some = inputs.subset(_spread(len(inputs), most)).in_memory()
        return normalize(some.images, some.normalization)
    if isinstance(inputs, DataLoader):
        return _joined(inputs, most)
    if isinstance(inputs, IterableDataset):
        return _stacked(list(islice(inputs, most)))
    is_batch = isinstance(inputs, (Tensor, tuple, list, Mapping))
    if is_batch or not hasattr(inputs, "__getitem__") or not hasattr(inputs, "__len__"):
        batch_size(as_call(inputs))  # refused if there is none
        return inputs
    return _stacked([inputs[number] for number in _spread(len(inputs), most).tolist()])


def _spread(count: int, most: int) -> Tensor:
    return torch.arange(0, count, max(1, count // most))[:most]


def _joined(loader: Iterable[Any], most: int) -> Any:
    """The first batches as one."""
    batches, found = [], 0
    for batch in loader:
        batches.append(_unlabelled(batch))
        found += batch_size(as_call(batches[-1]))
        if found >= most:
            break
    if not batches:
        raise InputError("there are no inputs: the data set is empty")
    whole = _combine(batches, torch.cat)
    args, kwargs = part_of(as_call(whole), slice(most))
    return kwargs or (args[0] if isinstance(whole, Tensor) else args)


def _stacked(entries: list[Any]) -> Any:
    if not entries:
        raise InputError("there are no inputs: the data set is empty")
    return _combine([_unlabelled(entry) for entry in entries], torch.stack)


def _unlabelled(entry: Any) -> Any:
    """The first part of a pair; a dict without what is called a label."""
    if isinstance(entry, (tuple, list)):
        return entry[0]
    if isinstance(entry, Mapping):
        return {name: value for name, value in entry.items() if name not in LABELS}
    return entry


def _combine(parts: list[Any], join: Any) -> Any:
    """Nested tensors made one, leaf by leaf; what is no number in a dict is left out."""
    first = parts[0]
    if isinstance(first, Mapping):
        names = [name for name, value in first.items() if _is_numeric(value)]
        return {name: _combine([part[name] for part in parts], join) for name in names}
    if isinstance(first, (tuple, list)):
        return tuple(_combine([part[place] for part in parts], join) for place in range(len(first)))
    try:
        return join([torch.as_tensor(part) for part in parts])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"the inputs cannot be made one batch: {error}") from error


def _is_numeric(value: Any) -> bool:
    """Whether there are arrays in it; a list of names is none."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_is_numeric, value))
    return isinstance(value, (Tensor, np.ndarray, Mapping))
