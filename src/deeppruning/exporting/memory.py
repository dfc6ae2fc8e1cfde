"""The memory a forward pass needs."""

import torch
from torch import Tensor, nn

from deeppruning.system.live_memory import LiveMemory


def peak_memory(model: nn.Module, example: Tensor) -> int:
    """Bytes of weights, input and activations alive at once in a forward pass, at the worst moment."""
    live = LiveMemory([*model.parameters(), *model.buffers(), example])
    with torch.no_grad(), live:
        model(example)
    return live.peak
