"""A search without labels: inputs gathered into a batch, candidates judged by the drift of their outputs.

>>> drift(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
Judgement(error=0.0, score=0.0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, IterableDataset

from deeppruning.config import SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.data.stream import ImageStream
from deeppruning.errors import Diverged, InputError
from deeppruning.graph.calls import (
    Call,
    as_call,
    batch_size,
    check_finite,
    in_precision,
    part_of,
    run_in_portions,
)
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.probing import FEWEST
from deeppruning.searching.evaluations import refits
from deeppruning.searching.task import MOST_REFITTED, Judgement, Task, candidate_inputs
from deeppruning.system.device import precision_of
from deeppruning.training.distillation import distillation_loss
from deeppruning.training.evaluate import mode
from deeppruning.training.imitation import relative_distance
from deeppruning.training.tensors import hash_tensors

CHUNK = 128  # inputs whose outputs are compared at once
KEPT_BYTES = 2**28  # of the original's outputs; larger ones are computed again for each candidate
LABELS = ("label", "labels", "target", "targets")  # of an entry that is a dict


def check_needs_no_labels(search: SearchConfig) -> None:
    """Refuse options of an evaluation that would need labels."""
    if not refits(search):
        raise InputError(
            f"there are no labels to evaluate candidates by {search.evaluation!r}: by inputs alone they are "
            "evaluated after a refit; leave out evaluation, or use prune"
        )


@dataclass
class Unlabelled(Task):
    """Any network, any inputs: a part of them to refit on, the rest to judge by."""

    model: nn.Module
    inputs: Any  # a tensor, a tuple of arguments or a dict of them, nested or not, with a batch
    device: str = "cpu"
    _outputs: list[Any] | None = field(default=None, init=False, repr=False)  # of the original, by chunk

    def __post_init__(self) -> None:
        count = batch_size(as_call(self.inputs))
        if count < 2 * FEWEST:
            several = isinstance(self.inputs, (tuple, list)) and len(self.inputs) > 1
            raise InputError(
                f"a search needs at least {2 * FEWEST} inputs, half to refit on and half to judge by, "
                f"got {count}"
                + ("; each entry of a list or tuple is an argument of its own" if several else "")
                + ("; join the inputs into one batch, for example by torch.stack" if several else "")
            )

    @classmethod
    def of(cls, model: nn.Module, inputs: Any) -> Unlabelled:
        """For a network and inputs in any precision: arrays of NumPy are double unless told otherwise."""
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        call = as_call(inputs)
        check_finite(call)
        args, kwargs = in_precision(call, precision_of(model))
        return cls(model, args[0] if isinstance(inputs, Tensor) else kwargs or args)

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """The share of different answers, or the relative distance of the outputs."""
        return self.judge(model, seed).error

    def judge(self, model: nn.Module, seed: int) -> Judgement:
        """The mean drift on the inputs that are not refitted on."""
        call = self._part(refitted=False)
        count, error, score = batch_size(call), 0.0, 0.0
        model.to(self.device)
        stored = self._original_outputs(call)
        original = self.model if stored else deepcopy(self.model).to(self.device)
        for number, start in enumerate(range(0, count, CHUNK)):
            rows = slice(start, min(start + CHUNK, count))
            part = part_of(call, rows)
            expected = stored[number] if stored else self._run(original, part)
            moved = drift(expected, self._run(model, part))
            share = (rows.stop - rows.start) / count
            error, score = error + share * moved.error, score + share * moved.judged
        return Judgement(error, score)

    def refit_inputs(self, *, final: bool = False) -> Any:
        """Every second input at most; all of them when nothing is judged any more."""
        args, kwargs = as_call(self.inputs) if final else self._part(refitted=True)
        return kwargs or args

    def untrained_error(self, model: nn.Module) -> float | None:
        """The drift of the network from itself: 0, unless its outputs are not finite or not repeatable."""
        return self.judge(model, 0).error

    def fingerprint(self) -> str:
        """A hash of the inputs."""
        return hash_tensors(
            {str(number): leaf for number, leaf in enumerate(tensors_in(as_call(self.inputs)))}
        )

    def _part(self, *, refitted: bool) -> Call:
        """Inputs spread evenly over all: some to refit candidates on, others to judge them by."""
        call = as_call(self.inputs)
        count = batch_size(call)
        most = candidate_inputs(sum(leaf.numel() for leaf in tensors_in(call)) // count)
        step = max(2, -(-count // most))
        chosen = torch.arange(count) % step == 0
        if not refitted:
            # Small inputs are cheap to judge by: all that are left.
            chosen = ~chosen if most == MOST_REFITTED else torch.arange(count) % step == step // 2
        rows: Any = chosen
        return part_of(call, rows)

    def _original_outputs(self, call: Call) -> list[Any]:
        """The original's outputs, chunk by chunk; empty if they are too large to keep."""
        if self._outputs is None:
            original = deepcopy(self.model).to(self.device)
            outputs, size = [], 0
            for start in range(0, batch_size(call), CHUNK):
                outputs.append(self._run(original, part_of(call, slice(start, start + CHUNK))))
                size += sum(leaf.nbytes for leaf in tensors_in(outputs[-1]))
                if size > KEPT_BYTES:
                    outputs = []
                    break
            self._outputs = outputs
        return self._outputs

    def _run(self, model: nn.Module, call: Call) -> Any:
        """The outputs of a network, in evaluation mode, for a part of the inputs."""
        with mode(model, training=False):
            return run_in_portions(model, call, self.device)


def drift(expected: Any, outputs: Any) -> Judgement:
    """How far outputs are from the expected ones, nested tensors of any form; raises Diverged if not finite.

    For class scores (inputs, classes) the error is the share of different answers, and the score the
    divergence of the probabilities. Otherwise both are `relative_distance`.
    """
    pairs = _output_pairs(expected, outputs)
    if not all(bool(torch.isfinite(new).all()) for _, new in pairs):
        raise Diverged("outputs of the network are not finite")
    if len(pairs) == 1 and pairs[0][0].dim() == 2 and pairs[0][0].shape[1] > 1:
        old, new = pairs[0]
        different = int((old.argmax(1) != new.argmax(1)).sum())
        return Judgement(different / max(len(old), 1), float(distillation_loss(new, old, 1.0)))
    distances = [float(relative_distance(old, new)) for old, new in pairs]
    mean = sum(distances) / len(distances)
    return Judgement(mean, mean)


def _output_pairs(expected: Any, outputs: Any) -> list[tuple[Tensor, Tensor]]:
    """The floating-point tensors of both, side by side."""
    old, new = map(tensors_in, (expected, outputs))
    if [leaf.shape for leaf in old] != [leaf.shape for leaf in new]:
        raise Diverged("the outputs of the thin network differ in shape from the original's")
    pairs = [(a.float(), b.float()) for a, b in zip(old, new, strict=True) if a.is_floating_point()]
    if not pairs:
        raise InputError("the network returns no floating-point tensors: there is nothing to compare")
    return pairs


def gather_inputs(inputs: Any, most: int, most_bytes: int = 2**63) -> Any:
    """Inputs as one batch: of a Dataset at most `most` entries, evenly spread, without their labels.

    They take no more than `most_bytes`, about. Of a DataLoader and of an IterableDataset the first are taken.
    """
    if isinstance(inputs, (ImageSet, ImageStream)):
        most = min(most, most_bytes // (4 * math.prod(inputs.image_shape)))  # in single precision
        some = inputs.subset(_spread_indices(len(inputs), most)).in_memory()
        return normalize(some.images, some.normalization)
    if isinstance(inputs, DataLoader):
        return _joined_batches(inputs, most, most_bytes)
    if isinstance(inputs, IterableDataset):
        entries = iter(inputs)
        begun = list(islice(entries, 1))
        return _stacked_entries([*begun, *islice(entries, min(most, _room_for(begun, most_bytes)) - 1)])
    is_batch = isinstance(inputs, (Tensor, tuple, list, Mapping, str, bytes))  # a text is refused there
    if is_batch or not hasattr(inputs, "__getitem__") or not hasattr(inputs, "__len__"):
        batch_size(as_call(inputs))  # raises an error if there is no batch
        return inputs
    first = [inputs[0]] if len(inputs) else []
    chosen = _spread_indices(len(inputs), min(most, _room_for(first, most_bytes)))
    return _stacked_entries([*first, *(inputs[number] for number in chosen[1:].tolist())])


def _spread_indices(count: int, most: int) -> Tensor:
    return torch.arange(0, count, max(1, count // most))[:most]


def _room_for(first: Sequence[Any], most_bytes: int) -> int:
    """How many entries like the first one, if there is any, take so many bytes."""
    return max(1, most_bytes // max(1, _bytes_of(first)))


def _bytes_of(entries: Any) -> int:
    return sum(getattr(leaf, "nbytes", 0) for leaf in tree_leaves(entries))


def _joined_batches(loader: Iterable[Any], most: int, most_bytes: int) -> Any:
    """The first batches as one."""
    batches, count, taken = [], 0, 0
    for batch in loader:
        batches.append(_without_labels(batch))
        count += batch_size(as_call(batches[-1]))
        taken += _bytes_of(batches[-1])
        if count >= most or taken >= most_bytes:
            break
    whole = _combine_nested(batches, torch.cat)
    args, kwargs = part_of(as_call(whole), slice(most))
    return kwargs or (args[0] if isinstance(whole, Tensor) else args)


def _stacked_entries(entries: list[Any]) -> Any:
    return _combine_nested([_without_labels(entry) for entry in entries], torch.stack)


def _without_labels(entry: Any) -> Any:
    """The first part of a pair; a dict without entries that are named like labels."""
    if isinstance(entry, (tuple, list)):
        return entry[0]
    if isinstance(entry, Mapping):
        return {name: value for name, value in entry.items() if name not in LABELS}
    return entry


def _combine_nested(parts: list[Any], join: Any) -> Any:
    """Nested tensors joined leaf by leaf; values of a dict that are not numeric are left out."""
    if not parts:
        raise InputError("there are no inputs: the data set is empty")
    first = parts[0]
    if isinstance(first, Mapping):
        names = [name for name, value in first.items() if _is_numeric(value)]
        return {name: _combine_nested([part[name] for part in parts], join) for name in names}
    if isinstance(first, (tuple, list)):
        return tuple(_combine_nested([part[place] for part in parts], join) for place in range(len(first)))
    try:
        return join([torch.as_tensor(part) for part in parts])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"the inputs cannot be joined into one batch: {error}") from error


def _is_numeric(value: Any) -> bool:
    """Whether it contains arrays; a list of names does not."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_is_numeric, value))
    return isinstance(value, (Tensor, np.ndarray, Mapping))
