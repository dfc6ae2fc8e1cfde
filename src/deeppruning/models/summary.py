"""Size and cost of a network of the zoo, measured by running it once."""

from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils.flop_counter import FlopCounterMode

from deeppruning.models.registry import about_model, create_model

WEIGHTED_OPERATIONS = ("ConvolutionBackward0", "AddmmBackward0", "MmBackward0")


@dataclass(frozen=True)
class ModelSummary:
    """A network in numbers; depth counts the convolutions and linear layers on the longest path."""

    name: str
    depth: int
    params: int
    flops: int  # multiply-adds of convolutions and linear layers for one image
    about: str


def describe_model(
    name: str, *, num_classes: int = 10, in_channels: int = 3, image_size: int = 32, **options: Any
) -> ModelSummary:
    """Measure a network on one blank image; the caller's random numbers are left as they were."""
    # Real tensors, because torch's shape-only device takes longer than computing one image.
    with torch.random.fork_rng(devices=[]):
        model = create_model(
            name, num_classes=num_classes, in_channels=in_channels, image_size=image_size, **options
        ).eval()
    image = torch.zeros(1, in_channels, image_size, image_size)
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        logits: Tensor = model(image)
    return ModelSummary(
        name=name,
        depth=_longest_path(logits),
        params=sum(parameter.numel() for parameter in model.parameters()),
        # The counter counts a multiply-add as two operations.
        flops=counter.get_total_flops() // 2,
        about=about_model(name),
    )


def _longest_path(output: Tensor) -> int:
    assert output.grad_fn is not None
    feeders: dict[Node, list[Node]] = {}
    waiting: list[Node] = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in feeders:
            feeders[node] = [feeder for feeder, _ in node.next_functions if feeder is not None]
            waiting += feeders[node]
    depth: dict[Node, int] = {}
    for node in TopologicalSorter(feeders).static_order():
        depth[node] = max((depth[feeder] for feeder in feeders[node]), default=0)
        depth[node] += node.name() in WEIGHTED_OPERATIONS
    return depth[output.grad_fn]
