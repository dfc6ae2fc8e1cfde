"""The measured time of a forward pass as an objective; then the result depends on the machine."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deeppruning.objectives.base import Measured, register_objective

if TYPE_CHECKING:
    from torch import nn


@register_objective
class Latency(Measured):
    """Median seconds of a forward pass on the example input, on the device that candidates are trained on."""

    name = "latency"
    label = "Latency in the search"
    unit = "seconds"

    def measure(self, network: nn.Module, example_input: Any, device: str) -> float:
        """Of a copy: where the network itself is trained is for the task to say."""
        return measure_latency(copy.deepcopy(network).to(device), example_input)


def measure_latency(model: nn.Module, example_input: Any, *, runs: int = 15) -> float:
    """Median seconds of a forward pass on the example input, after a warm-up."""
    import torch
    from torch.utils._pytree import tree_map

    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    there = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, example_input)
    kwargs = there if isinstance(there, Mapping) else {}
    args = () if kwargs else tuple(there) if isinstance(there, (tuple, list)) else (there,)
    was_training = model.training
    model.eval()
    seconds = []
    with torch.inference_mode():
        for _ in range(runs + 3):
            start = time.perf_counter()
            model(*args, **kwargs)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
    model.train(was_training)
    return statistics.median(seconds[3:])
