"""Stand-ins for lost layers that need not look at their input: what they give is known beforehand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deeppruning.deploying.reading import SeenRun
from deeppruning.graph.cut.hollow import Answer, Hollow


class Fixed(nn.Module):
    """Gives the same tensor whatever comes in."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, x: Tensor) -> Tensor:
        """The tensor."""
        return self.value


def find_answers(model: nn.Module, reading: SeenRun) -> list[str]:
    """Stand-ins that answer a constant which nobody writes into."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, Answer)
        and (span := reading.once(name)) is not None
        and not reading.is_overwritten(span)
    ]


def find_unheard(model: nn.Module, reading: SeenRun) -> list[str]:
    """Stand-ins without channels on whom, now that answers do not look at them, no output depends."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, Hollow)
        and (span := reading.once(name)) is not None
        and not reading.heard & set(span)
    ]


def fixed(module: nn.Module, dimensions: int) -> Fixed:
    """What stands in for a stand-in whose output has this many dimensions: one place a map."""
    if isinstance(module, Answer):
        value = module.bias.detach().clone()
        if module.channels_last:
            return Fixed(value)
        behind = dimensions - 1 if not module.spread else dimensions - 2
        return Fixed(value.reshape([len(value)] + [1] * behind))
    shape = [1] * dimensions
    shape[-1 if getattr(module, "channels_last", False) else min(1, dimensions - 1)] = 0
    like = next(module.parameters(), torch.zeros(0))
    return Fixed(like.new_zeros(shape))
