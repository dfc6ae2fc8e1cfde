"""What is recorded of the original's layers: places, answers, what they are added to, moments of channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from deeppruning.refitting.patches import Places, patches_at
from deeppruning.refitting.readers import Anchor, Gate

CHUNK = 2**25  # numbers in the patches that are in memory at once


@dataclass
class Partner:
    """What a layer's answer is added to: where it is available, and its values in the original."""

    anchor: Anchor
    answers: Tensor  # (inputs, places, filters)


class Moments:
    """Mean and variance of each channel over all parts of a batch."""

    def __init__(self) -> None:
        self._inputs = 0
        self._mean = self._square = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Add a part."""
        mean, variance = (values.double() for values in statistics(x))
        share = len(x) / (self._inputs + len(x))
        self._inputs += len(x)
        self._mean = self._mean + share * (mean - self._mean)
        self._square = self._square + share * (variance + mean.square() - self._square)

    def result(self) -> tuple[Tensor, Tensor]:
        """Mean and variance, in single precision."""
        variance = (self._square - self._mean.square()).clamp_min(0.0)
        return self._mean.float(), variance.float()


@dataclass
class LayerRecord:
    """One convolution or linear layer: the places looked at, its answers there and, if large, its inputs."""

    places: Places
    answers: Tensor  # (inputs, places, filters); several rows for one input where it is cut into windows
    reads: Tensor | None  # (inputs, places, channels): at the middle of each patch
    norm: str | None = None  # the batch norm that alone reads the answers: it removes any offset
    partner: Partner | None = None
    gate: Gate | None = None  # the activation that alone reads the answers, behind norm and sum
    parts: list[slice] = field(default_factory=lambda: [slice(None)])  # its rows of each part of the inputs

    @property
    def rows(self) -> int:
        """The number of equations for each filter."""
        return self.places.numbers.numel()

    def patches(self, layer: Any, x: Tensor, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """What the layer reads of these inputs, in chunks that fit into memory, each with its rows of `x`."""
        numbers = self.places.numbers[rows]
        groups = getattr(layer, "groups", 1)
        size = max(1, CHUNK // max(1, numbers.shape[1] * layer.weight[0].numel() * groups))
        for start in range(0, len(x), size):
            chunk = slice(start, min(start + size, len(x)))
            yield chunk, patches_at(layer, x[chunk], Places(numbers[chunk], self.places.extents))


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel."""
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    if values.device.type == "cpu":  # what batch norm itself uses takes a third of the time
        mean, variance = torch.batch_norm_update_stats(values, None, None, 0.0)
    else:
        variance, mean = torch.var_mean(values, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, variance
