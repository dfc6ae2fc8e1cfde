"""What a layer reads at chosen positions of its output, one row per position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it, modulo 1, are spread evenly however many there are


@dataclass(frozen=True)
class Places:
    """For each input of a batch some positions of a layer's output, numbered in memory order."""

    numbers: Tensor  # (batch, places)
    extents: tuple[int, ...]  # of the output, without batch and channels

    @classmethod
    def draw(cls, batch: int, extents: tuple[int, ...], count: int, generator: torch.Generator) -> Places:
        """Places spread over each input from a random start: `count` of them, or all."""
        total = math.prod(extents)
        if count >= total:
            return cls(torch.arange(total).expand(batch, total), extents)
        start = torch.rand(batch, 1, generator=generator, dtype=torch.float64)
        spread = (start + torch.arange(count) * GOLDEN) % 1.0
        return cls((spread * total).long(), extents)

    def along(self, dimension: int) -> Tensor:
        """The coordinate of each place along one dimension of the output."""
        step = 1
        for extent in self.extents[dimension + 1 :]:
            step *= extent
        return self.numbers // step % self.extents[dimension]


def answers_at(output: Tensor, places: Places, *, channels_last: bool) -> Tensor:
    """(batch, places, channels): a layer's output there."""
    return _rows_at_places(output, places) if channels_last else _rows_at_places(output.flatten(2).mT, places)


def _rows_at_places(values: Tensor, places: Places) -> Tensor:
    """(batch, places, channels) of a tensor with the channels in its last dimension."""
    flat = values[:, None] if values.dim() == 2 else values.flatten(1, -2)
    index = places.numbers.to(values.device)[..., None].expand(-1, -1, flat.shape[-1])
    return flat.gather(1, index)


def patches_at(layer: nn.Module, x: Tensor, places: Places) -> Tensor:
    """(batch, places, inputs, kernel elements): what a layer reads there; one element for a linear layer."""
    if not isinstance(layer, _ConvNd):
        return _rows_at_places(x, places)[..., None]
    rank = len(layer.kernel_size)
    before = [layer._reversed_padding_repeated_twice[2 * (rank - 1 - dimension)] for dimension in range(rank)]
    batch, count = places.numbers.shape
    index = torch.zeros(batch, count, *layer.kernel_size, dtype=torch.long)
    inside = torch.ones_like(index, dtype=torch.bool)
    for dimension in range(rank):
        extent = x.shape[2 + dimension]
        corner = places.along(dimension) * layer.stride[dimension] - before[dimension]
        reach = torch.arange(layer.kernel_size[dimension]) * layer.dilation[dimension]
        shape = [1] * (2 + rank)
        shape[2 + dimension] = -1
        where = corner.reshape(batch, count, *[1] * rank) + reach.reshape(shape)
        inside &= (where >= 0) & (where < extent)
        index = index * extent + _inside_padding(where, extent, layer.padding_mode)
    wanted = index.reshape(batch, 1, -1).to(x.device).expand(-1, x.shape[1], -1)
    read = x.flatten(2).gather(2, wanted)
    if layer.padding_mode == "zeros" and any(layer._reversed_padding_repeated_twice):
        read = read * inside.reshape(batch, 1, -1).to(read)
    return read.reshape(batch, x.shape[1], count, -1).transpose(1, 2)


def _inside_padding(where: Tensor, extent: int, padding_mode: str) -> Tensor:
    """Coordinates in the padding, moved to where the padding takes its values from."""
    if padding_mode == "circular":
        return where % extent
    if padding_mode == "reflect":
        return extent - 1 - (extent - 1 - where.abs()).abs()
    return where.clamp(0, extent - 1)
