"""The convolutions and linear layers of a network that are timed: each with its shape and its widths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call, batch_size

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class LayerShape:
    """A convolution or linear layer on an input of some size, without the extents of its weight.

    The extents are those of the weight's first two dimensions: filters and input channels (of one group),
    or the other way round for a transposed convolution.
    """

    size: Sizes  # of the input, without batch and channels; for a linear layer the rows of one input
    kernel: Sizes = ()  # empty for a linear layer
    stride: Sizes = ()
    padding: Sizes = ()
    dilation: Sizes = ()
    groups: int = 1  # 0: the filters divided by `per_group`, because cuts remove whole groups
    per_group: int = 1
    transposed: bool = False

    def channels(self, extents: tuple[int, int]) -> tuple[int, int, int]:
        """Input channels, output channels and groups of the layer with these extents of its weight."""
        first, second = extents
        groups = self.groups or max(1, first // self.per_group)
        if self.transposed:
            return first, second * groups, groups
        return second * groups, first, groups

    def rounded(self, extents: tuple[int, int]) -> tuple[int, int]:
        """The nearest extents that the groups divide evenly."""
        step = self.groups or self.per_group
        return max(1, round(extents[0] / step)) * step, extents[1]


@dataclass(frozen=True)
class Layer:
    """A layer of one network: its shape, its extents, and which of them a cut can change."""

    name: str
    shape: LayerShape
    extents: tuple[int, int]
    free: tuple[bool, bool]
    inputs: int  # values read per input channel and input of the network
    outputs: int


def find_layers(graph: ChannelGraph, network: nn.Module, example_input: Any) -> list[Layer]:
    """Every call of a convolution or linear layer when the network, an uncut copy, is run on an input."""
    cut = graph.parameter_genes()
    args, kwargs = as_call(example_input)
    batch = batch_size((args, kwargs))
    layers: list[Layer] = []

    def note(name: str, module: nn.Module, seen: Tensor, answer: Tensor) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        cuts = {dimension for dimension, genes in cut.get(f"{name}.weight", {}).items() if (genes >= 0).any()}
        free = (0 in cuts, 1 in cuts)
        shape = _shape_of_layer(module, seen, batch, whole=not free[1])
        inside = math.prod(seen.shape) // (seen.shape[_channel_dimension(module, seen)] * batch)
        outside = math.prod(answer.shape) // (answer.shape[_channel_dimension(module, answer)] * batch)
        layers.append(Layer(name, shape, (weight.shape[0], weight.shape[1]), free, inside, outside))

    hooks = [
        module.register_forward_hook(
            lambda module, args, answer, name=name: note(name, module, args[0], answer) if args else None
        )
        for name, module in network.named_modules()
        if isinstance(module, (_ConvNd, nn.Linear))
    ]
    try:
        with torch.no_grad():
            network(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return layers


def _shape_of_layer(module: nn.Module, seen: Tensor, batch: int, *, whole: bool) -> LayerShape:
    if not isinstance(module, _ConvNd):
        return LayerShape((math.prod(seen.shape[:-1]) // batch,))
    grouped = module.groups > 1
    per_group = module.weight.shape[0] // module.groups
    return LayerShape(
        size=tuple(seen.shape[2:]) if seen.dim() == module.weight.dim() else tuple(seen.shape[1:]),
        kernel=module.kernel_size,
        stride=module.stride,
        padding=_padding_numbers(module),
        dilation=module.dilation,
        groups=0 if grouped and whole else module.groups,
        per_group=per_group if grouped else 1,
        transposed=isinstance(module, _ConvTransposeNd),
    )


def _padding_numbers(module: _ConvNd) -> Sizes:
    if isinstance(module.padding, tuple):
        return module.padding
    if module.padding == "valid":
        return (0,) * len(module.kernel_size)
    # "same" may pad one side more, which hardly changes the time.
    return tuple(
        span * (kernel - 1) // 2 for span, kernel in zip(module.dilation, module.kernel_size, strict=True)
    )


def _channel_dimension(module: nn.Module, tensor: Tensor) -> int:
    """The dimension of channels; a convolution's input may lack the batch."""
    if isinstance(module, nn.Linear):
        return tensor.dim() - 1
    assert isinstance(module, _ConvNd)
    return tensor.dim() - len(module.kernel_size) - 1
