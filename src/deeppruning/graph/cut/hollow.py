"""Modules that replace those a thin network has lost or cannot run: they keep shapes in order.

>>> import torch
>>> Hollow(Extents.of(nn.Conv2d(3, 8, 3, stride=2)))(torch.zeros(1, 3, 9, 9)).shape
torch.Size([1, 0, 4, 4])
>>> Answer(torch.tensor([1.0, 2.0]), Extents.of(nn.Conv2d(3, 2, 1)))(torch.zeros(1, 0, 2, 2)).shape
torch.Size([1, 2, 2, 2])
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.pooling import (
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
    _AvgPoolNd,
    _MaxPoolNd,
)

from deeppruning.errors import WeightsError


@dataclass(frozen=True)
class Extents:
    """How a layer changes the sizes behind its channels: n becomes (n * times + plus) // over + 1.

    With `ceil` the division rounds up, and a last window that would start beyond the input and its padding is
    left out, as in torch's pooling. Without dimensions, sizes stay as they are.
    """

    times: tuple[int, ...] = ()
    plus: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    ceil: bool = False
    padding: tuple[int, ...] = ()
    channels_last: bool = False

    @classmethod
    def of(cls, module: nn.Module) -> "Extents | None":
        """The extents of a torch layer; None for an unknown type."""
        if isinstance(module, nn.Linear):
            return cls(channels_last=True)
        if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
            return cls(channels_last=True)
        if isinstance(module, (_NormBase, nn.GroupNorm)):
            return cls()
        if isinstance(module, _ConvNd):
            return _convolution(module)
        if isinstance(module, (_MaxPoolNd, _AvgPoolNd)):
            return _pool(module)
        if isinstance(module, (_AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd)):
            return _adaptive(module)
        return None


def extents_of(name: str, module: nn.Module) -> Extents:
    """The extents of a layer that must have them."""
    extents = Extents.of(module)
    if extents is None:
        raise WeightsError(f"{name} is a {type(module).__name__}, which cannot be left out of a network")
    return extents


def _convolution(module: _ConvNd) -> Extents:
    """How a convolution changes sizes."""
    rank = len(module.kernel_size)
    reach = [
        dilation * (size - 1) for dilation, size in zip(module.dilation, module.kernel_size, strict=True)
    ]
    ones = (1,) * rank
    if isinstance(module.padding, str):
        plus = (-1,) * rank if module.padding == "same" else tuple(-each - 1 for each in reach)
        return Extents(ones, plus, tuple(module.stride))
    if isinstance(module, _ConvTransposeNd):
        sizes = zip(module.stride, module.padding, reach, module.output_padding, strict=True)
        plus = tuple(-stride - 2 * pad + each + extra for stride, pad, each, extra in sizes)
        return Extents(tuple(module.stride), plus, ones)
    plus = tuple(2 * pad - each - 1 for pad, each in zip(module.padding, reach, strict=True))
    return Extents(ones, plus, tuple(module.stride))


def _pool(module: Any) -> Extents:
    """How a pooling changes sizes."""
    rank = int(type(module).__name__[-2])
    kernel, stride = _each(module.kernel_size, rank), _each(module.stride, rank)
    padding, dilation = _each(module.padding, rank), _each(getattr(module, "dilation", 1), rank)
    sizes = zip(padding, dilation, kernel, strict=True)
    plus = tuple(2 * pad - step * (size - 1) - 1 for pad, step, size in sizes)
    return Extents((1,) * rank, plus, stride, ceil=bool(module.ceil_mode), padding=padding)


def _adaptive(module: Any) -> Extents:
    """How a pooling to a fixed size changes sizes."""
    rank = int(type(module).__name__[-2])
    wanted = _each(module.output_size, rank)
    times = tuple(1 if size is None else 0 for size in wanted)
    plus = tuple(-1 if size is None else size - 1 for size in wanted)
    return Extents(times, plus, (1,) * rank)


def _each(value: Any, rank: int) -> tuple[Any, ...]:
    """One value per dimension of the map."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


class _StandIn(nn.Module):
    """The shape of a layer's output, with another number of channels."""

    def __init__(self, extents: Extents, channels: int) -> None:
        super().__init__()
        self.rank = len(extents.times)
        # TorchScript cannot infer the type of an empty list.
        self.times, self.plus = [*extents.times, 1], [*extents.plus, -1]
        self.over, self.padding = [*extents.over, 1], [*extents.padding, 0]
        self.ceil = extents.ceil
        self.channels_last = extents.channels_last
        self.channels = channels

    def shape(self, x: Tensor) -> list[int]:
        """The shape of the layer's output for this input."""
        sizes = list(x.shape)
        first = len(sizes) - self.rank
        sizes[self.dimension(x)] = self.channels
        for place in range(self.rank):
            size, over = sizes[first + place], self.over[place]
            reach = size * self.times[place] + self.plus[place]
            count = (reach + over - 1 if self.ceil else reach) // over + 1
            if self.ceil and (count - 1) * over >= size + self.padding[place]:
                count -= 1
            sizes[first + place] = count
        return sizes

    def dimension(self, x: Tensor) -> int:
        """The dimension of the channels."""
        if self.channels_last:
            return x.dim() - 1
        return x.dim() - self.rank - 1 if self.rank > 0 else 1


class Hollow(_StandIn):
    """Replaces a layer with an output that is gone or not read: a tensor without channels."""

    def __init__(self, extents: Extents) -> None:
        super().__init__(extents, 0)
        # The usual layer keeps every `over`-th position: one slicing operation does so, also when exported.
        self.slices = not extents.ceil and set(extents.times) <= {1} and set(extents.plus) <= {-1}

    def forward(self, x: Tensor) -> Tensor:
        """A tensor without data, of the right shape."""
        if not self.slices:
            return x.new_zeros(self.shape(x))
        nothing = x.detach().narrow(self.dimension(x), 0, 0)
        for place in range(self.rank):
            if self.over[place] > 1:
                dimension = x.dim() - self.rank + place
                nothing = torch.ops.aten.slice(nothing, dimension, 0, None, self.over[place])
        return nothing.clone()


class Answer(_StandIn):
    """Replaces a layer that has lost all its inputs: the same output at every position, for any input.

    One position per map is enough where the output is added to a tensor of full size; `spread` fills the map.
    """

    def __init__(self, value: Tensor, extents: Extents, *, spread: bool = True) -> None:
        super().__init__(extents, len(value))
        self.bias = nn.Parameter(value)
        self.spread = spread

    def forward(self, x: Tensor) -> Tensor:
        """The constant, in the shape of the layer's output or one that broadcasts to it."""
        value: Tensor = self.bias
        if not self.channels_last:
            value = value.reshape([self.channels] + [1] * (x.dim() - self.dimension(x) - 1))
        if self.spread:
            value = value.expand(self.shape(x))
        return value.clone()  # a copy, since later operations may write into it


def answer_of(module: nn.Module, feeder: nn.Module | None) -> Tensor:
    """What a layer gives without inputs: its bias, or what a batch norm gives for its feeder's bias."""
    layer = module if feeder is None else feeder
    weight = layer.weight
    assert isinstance(weight, Tensor)
    bias = layer.bias
    width = weight.shape[1] * layer.groups if isinstance(layer, _ConvTransposeNd) else weight.shape[0]
    value = bias.detach().clone() if isinstance(bias, Tensor) else weight.new_zeros(width)
    if feeder is None:
        return value
    assert isinstance(module, _NormBase)
    mean, variance = module.running_mean, module.running_var
    assert mean is not None
    assert variance is not None
    value = (value - mean) / (variance + module.eps).sqrt()
    if module.weight is not None:
        value = value * module.weight.detach() + module.bias.detach()
    return value


class Reindexed(nn.Module):
    """Expands the thin input to its full width, runs the module unchanged, picks the channels that stay.

    The zero-padded shortcut of a ResNet is the usual case: it always pads 16 channels to 32.
    The removed input channels are zeros, exactly as in the masked network.
    """

    spread: Tensor
    pick: Tensor

    def __init__(self, inner: nn.Module, kept_in: Tensor, width_in: int, kept_out: Tensor) -> None:
        super().__init__()
        self.inner = inner
        positions = torch.full((width_in,), len(kept_in), dtype=torch.long)  # the zero channel put last
        positions[kept_in] = torch.arange(len(kept_in))
        self.register_buffer("spread", positions, persistent=False)
        self.register_buffer("pick", kept_out.clone(), persistent=False)
        self.full_in = len(kept_in) == width_in

    def forward(self, x: Tensor) -> Tensor:
        """The module's output on the channels that stay."""
        if not self.full_in:
            padding = [0, 0] * (x.dim() - 2) + [0, 1]
            x = functional.pad(x, padding).index_select(1, self.spread)
        out: Tensor = self.inner(x)
        return out.index_select(1, self.pick)
