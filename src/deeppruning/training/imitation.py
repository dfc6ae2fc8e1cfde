"""Lessons without labels: a network learns to give the outputs of another one, for any inputs.

>>> teacher, inputs = nn.Linear(3, 2), torch.randn(8, 3)
>>> lesson = Imitation(inputs, teacher, TrainConfig(batch_size=4), torch.device("cpu"))
>>> [lesson.taught(teacher, batch).loss.item() for batch in lesson.batches(1)]
[0.0, 0.0]
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.config import TrainConfig
from deeppruning.errors import InputError
from deeppruning.genome import derived_seed
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.training.distillation import distillation_loss, scale_of_scores
from deeppruning.training.inside import Inside
from deeppruning.training.lesson import Lesson, Taught

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Imitation(Lesson):
    """Inputs in batches; outputs of any form are compared with the teacher's."""

    inputs: Any  # a tensor, a tuple of arguments or a dict of them, with a batch
    original: nn.Module
    config: TrainConfig
    device: torch.device
    temperature: float = 4.0
    inside: Inside | None = None  # where activations are compared, too

    def batches(self, epoch: int) -> "_Shuffled":
        """The inputs in an order by seed and epoch."""
        call = as_call(self.inputs)
        seed = derived_seed(self.config.seed, epoch, "batches")
        order = torch.randperm(batch_size(call), generator=torch.Generator().manual_seed(seed))
        return _Shuffled(call, order, self.config.batch_size, self.device)

    def taught(self, model: nn.Module, batch: Call) -> Taught:
        """The distance of the outputs from the teacher's."""
        args, kwargs = batch
        with nullcontext() if self.inside is None else self.inside.watch(model, self.original) as seen:
            with torch.no_grad():
                expected = self.original(*args, **kwargs)
            outputs = model(*args, **kwargs)
            loss = imitation_loss(outputs, expected, self.temperature)
            if seen is not None:
                loss = loss + scale_of_outputs(expected) * seen.distance()
        wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        return Taught(loss, batch_size(batch), wrong)

    @property
    def teacher(self) -> nn.Module | None:
        """The network that is imitated."""
        return self.original

    def description(self) -> dict[str, Any]:
        """Options, and what the inputs look like."""
        shapes = [list(leaf.shape) for leaf in tensors_in(as_call(self.inputs))]
        options = self.config.to_table()
        options.pop("features", None)
        if self.inside is not None:
            options["features"] = self.inside.weight
        return {**options, "temperature": self.temperature, "inputs": shapes}


@dataclass(frozen=True, eq=False)
class _Shuffled:
    call: Call
    order: Tensor
    size: int
    device: torch.device

    def __len__(self) -> int:
        # A batch of one has no variance for a batch norm: it is left out.
        whole, rest = divmod(len(self.order), self.size)
        return max(1, whole + (rest > 1))

    def __iter__(self) -> Iterator[Call]:
        for number in range(len(self)):
            rows: Any = self.order[number * self.size : (number + 1) * self.size]
            yield onto(part_of(self.call, rows), self.device)


def imitation_loss(outputs: Any, expected: Any, temperature: float) -> Tensor:
    """How far nested outputs are from the expected ones.

    Class scores, a single (inputs, classes), are compared as probabilities softened by `temperature`; other
    outputs by `relative_distance`.
    """
    new, old = _float_outputs(outputs), _float_outputs(expected)
    if [leaf.shape for leaf in new] != [leaf.shape for leaf in old] or not new:
        shapes = " and ".join(str([tuple(leaf.shape) for leaf in leaves]) for leaves in (new, old))
        raise InputError(f"the network and its teacher have different outputs: {shapes}")
    if _are_scores(new):
        return distillation_loss(new[0], old[0], temperature)
    distances = [relative_distance(theirs, ours) for ours, theirs in zip(new, old, strict=True)]
    return torch.stack(distances).mean()


def scale_of_outputs(expected: Any) -> Tensor | float:
    """What `imitation_loss` is for outputs that follow nothing of the expected ones, about."""
    outputs = _float_outputs(expected)
    return scale_of_scores(outputs[0]) if _are_scores(outputs) else 1.0


def _are_scores(outputs: Sequence[Tensor]) -> bool:
    """Whether outputs are the scores of classes."""
    return len(outputs) == 1 and outputs[0].dim() == 2 and outputs[0].shape[1] > 1


def _float_outputs(nested: Any) -> list[Tensor]:
    return [leaf.float() for leaf in tensors_in(nested) if leaf.is_floating_point()]


def relative_distance(old: Tensor, new: Tensor) -> Tensor:
    """How much of the variation of the expected outputs, `old`, is not followed by the new ones: 0 to 1.

    Outputs often join figures of different scale, as a detector's coordinates and scores: each slice along
    the shortest axis, besides the batch, is judged on its own. It counts d / (d + v), where d is its mean
    squared distance and v its variance, so that one that hardly varies cannot outweigh the others.

    >>> old = torch.tensor([[100.0, 0.1], [200.0, 0.2]])
    >>> lost = relative_distance(old, old * torch.tensor([1.0, 0.0]))  # the second column
    >>> round(lost.item(), 4)
    0.4545
    """
    if old.dim() < 2:
        old, new = old.reshape(-1, 1), new.reshape(-1, 1)
    sizes = old.shape[1:]
    rest = [axis for axis in range(old.dim()) if axis != 1 + sizes.index(min(sizes))]
    varied = old - old.mean(0, keepdim=True) if len(old) > 1 else old
    variance, distance = varied.square().mean(rest), (old - new).square().mean(rest)
    return (distance / (distance + variance).clamp_min(_TINY)).mean()
