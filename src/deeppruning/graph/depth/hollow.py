"""Stand-ins for layers that a thin network has lost: they cost nothing and keep shapes in order.

>>> import torch
>>> Hollow(Extents.of(nn.Conv2d(3, 8, 3, stride=2)))(torch.zeros(1, 3, 9, 9)).shape
torch.Size([1, 0, 4, 4])
>>> Answer(torch.tensor([1.0, 2.0]), Extents.of(nn.Conv2d(3, 2, 1)))(torch.zeros(1, 0, 2, 2)).shape
torch.Size([1, 2, 2, 2])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
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

    With `ceil` the division rounds up, and a last window that would start beyond the input's own end and
    its padding is left out, as torch's pooling has it. Without dimensions, sizes stay as they are.
    """

    times: tuple[int, ...] = ()
    plus: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    ceil: bool = False
    padding: tuple[int, ...] = ()
    channels_last: bool = False

    @classmethod
    def of(cls, module: nn.Module) -> Extents | None:
        """Those of a layer of torch's; None for a kind that is not known here."""
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
    """Those of a layer that must have some."""
    found = Extents.of(module)
    if found is None:
        raise WeightsError(f"{name} is a {type(module).__name__}, which cannot be left out of a network")
    return found


def _convolution(module: _ConvNd) -> Extents | None:
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
    rank = int(type(module).__name__[-2])
    kernel, stride = _each(module.kernel_size, rank), _each(module.stride, rank)
    padding, dilation = _each(module.padding, rank), _each(getattr(module, "dilation", 1), rank)
    sizes = zip(padding, dilation, kernel, strict=True)
    plus = tuple(2 * pad - step * (size - 1) - 1 for pad, step, size in sizes)
    return Extents((1,) * rank, plus, stride, ceil=bool(module.ceil_mode), padding=padding)


def _adaptive(module: Any) -> Extents:
    rank = int(type(module).__name__[-2])
    wanted = module.output_size if isinstance(module.output_size, tuple) else (module.output_size,) * rank
    times = tuple(1 if size is None else 0 for size in wanted)
    plus = tuple(-1 if size is None else size - 1 for size in wanted)
    return Extents(times, plus, (1,) * rank)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank


class _StandIn(nn.Module):
    """What both kinds share: the shape a layer would have given, with channels of our own number."""

    def __init__(self, extents: Extents, channels: int) -> None:
        super().__init__()
        self.times, self.plus, self.over = list(extents.times), list(extents.plus), list(extents.over)
        self.ceil, self.padding = extents.ceil, list(extents.padding)
        self.channels_last = extents.channels_last
        self.channels = channels

    def shape(self, x: Tensor) -> list[int]:
        """The shape of the layer's answer to this input."""
        sizes: list[int] = list(x.shape)
        if self.channels_last:
            sizes[-1] = self.channels
            return sizes
        rank = len(self.times)
        first = len(sizes) - rank
        sizes[first - 1 if rank > 0 else 1] = self.channels
        for place in range(rank):
            size, over = sizes[first + place], self.over[place]
            reach = size * self.times[place] + self.plus[place]
            count = (reach + over - 1 if self.ceil else reach) // over + 1
            if self.ceil and (count - 1) * over >= size + self.padding[place]:
                count -= 1
            sizes[first + place] = count
        return sizes


class Hollow(_StandIn):
    """In place of a layer whose answer is gone or read by nobody: a tensor without channels."""

    def __init__(self, extents: Extents) -> None:
        super().__init__(extents, 0)

    def forward(self, x: Tensor) -> Tensor:
        """No data, only the shape."""
        return x.new_zeros(self.shape(x))


class Answer(_StandIn):
    """In place of a layer whose inputs are all gone: the same answer at every place, whatever comes in."""

    def __init__(self, value: Tensor, extents: Extents) -> None:
        super().__init__(extents, len(value))
        self.bias = nn.Parameter(value)

    def forward(self, x: Tensor) -> Tensor:
        """The constant, spread over the shape that the layer would have given."""
        sizes = self.shape(x)
        value = self.bias
        if not self.channels_last:
            rank = len(self.times) if len(self.times) > 0 else len(sizes) - 2
            value = value.reshape([self.channels] + [1] * rank)
        # In memory of its own: what follows may write into it.
        return value.expand(sizes).clone()


def answer_of(module: nn.Module, feeder: nn.Module | None) -> Tensor:
    """What a layer answers when nothing comes in: its bias, or a batch norm's of its feeder's bias."""
    layer = module if feeder is None else feeder
    weight = layer.weight
    assert isinstance(weight, Tensor)
    bias = layer.bias
    transposed = isinstance(layer, _ConvTransposeNd)
    width = weight.shape[1] * layer.groups if transposed else weight.shape[0]  # type: ignore[operator]
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
