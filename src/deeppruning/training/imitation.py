"""Lessons without labels: a network learns to give the outputs of another one, for any inputs.

>>> teacher, inputs = nn.Linear(3, 2), torch.randn(8, 3)
>>> lesson = Imitation(inputs, teacher, TrainConfig(batch_size=4), torch.device("cpu"))
>>> [lesson.taught(teacher, batch).loss.item() for batch in lesson.batches(1)]
[0.0, 0.0]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.config import TrainConfig
from deeppruning.errors import InputError
from deeppruning.genome import derived_seed
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.training.distillation import distillation_loss
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

    def batches(self, epoch: int) -> "_Shuffled":
        """The inputs in an order by seed and epoch."""
        call = as_call(self.inputs)
        seed = derived_seed(self.config.seed, epoch, "batches")
        order = torch.randperm(batch_size(call), generator=torch.Generator().manual_seed(seed))
        return _Shuffled(call, order, self.config.batch_size, self.device)

    def taught(self, model: nn.Module, batch: Call) -> Taught:
        """The distance of the outputs from the teacher's."""
        args, kwargs = batch
        with torch.no_grad():
            expected = self.original(*args, **kwargs)
        outputs = model(*args, **kwargs)
        count = batch_size(batch)
        wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        return Taught(imitation_loss(outputs, expected, self.temperature), count, wrong)

    @property
    def teacher(self) -> nn.Module | None:
        """The network that is imitated."""
        return self.original

    def description(self) -> dict[str, Any]:
        """Options, and what the inputs look like."""
        shapes = [list(leaf.shape) for leaf in tensors_in(as_call(self.inputs))]
        return {**self.config.to_table(), "temperature": self.temperature, "inputs": shapes}


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
    outputs by the squared distance over the variance of the expected ones.
    """
    new, old = (
        [leaf.float() for leaf in tensors_in(tree) if leaf.is_floating_point()]
        for tree in (outputs, expected)
    )
    if [leaf.shape for leaf in new] != [leaf.shape for leaf in old] or not new:
        shapes = " and ".join(str([tuple(leaf.shape) for leaf in leaves]) for leaves in (new, old))
        raise InputError(f"the network and its teacher have different outputs: {shapes}")
    if len(new) == 1 and new[0].dim() == 2 and new[0].shape[1] > 1:
        return distillation_loss(new[0], old[0], temperature)
    distances = [relative_distance(theirs, ours) for ours, theirs in zip(new, old, strict=True)]
    return torch.stack(distances).mean()


def _float_outputs(nested: Any) -> list[Tensor]:
    return [leaf.float() for leaf in tensors_in(nested) if leaf.is_floating_point()]


def relative_distance(old: Tensor, new: Tensor) -> Tensor:
    """The mean squared distance over the variance of the expected outputs, `old`."""
    spread = (old - old.mean(0, keepdim=True)).square().mean() if len(old) > 1 else old.square().mean()
    return (old - new).square().mean() / spread.clamp_min(_TINY)
