"""Depthwise, grouped and shuffled convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graph_networks.parts import (
    around,
    block,
    conv,
    head,
    network,
)


@network
def depthwise():
    return nn.Sequential(block(3, 8), block(8, 8, groups=8), block(8, 6, 1), head(6))


@network
def depthwise_multiplier():
    return nn.Sequential(block(3, 6), conv(6, 12, groups=6), nn.ReLU(), block(12, 6, 1), head(6))


@network
def depthwise_on_input():
    return nn.Sequential(conv(3, 6, groups=3), nn.ReLU(), block(6, 6, 1), head(6))


@network
def grouped_many():
    return nn.Sequential(block(3, 16), block(16, 16, groups=8), block(16, 6, 1), head(6))


@network
def grouped_few():
    return nn.Sequential(block(3, 12), block(12, 16, groups=2), block(16, 6, 1), head(6))


@network
def grouped_narrowing():
    return nn.Sequential(block(3, 16), block(16, 4, groups=4), block(4, 6, 1), head(6))


@network
def grouped_transposed_few():
    return nn.Sequential(
        block(3, 12), nn.ConvTranspose2d(12, 8, 2, 2, groups=2), nn.BatchNorm2d(8), conv(8, 6), head(6)
    )


@network
def grouped_transposed_many():
    return nn.Sequential(
        block(3, 12), nn.ConvTranspose2d(12, 12, 2, 2, groups=6, bias=False), conv(12, 6), head(6)
    )


@network
def depthwise_transposed():
    return nn.Sequential(block(3, 6), nn.ConvTranspose2d(6, 6, 2, 2, groups=6), conv(6, 6), head(6))


@network
def looks_depthwise_one_output():
    def run(net, x):
        return x * torch.sigmoid(net.map(x))

    return around(run, 6, map=conv(6, 1, 1))


@network
def looks_depthwise_one_channel():
    return nn.Sequential(
        conv(3, 1), nn.ReLU(), conv(1, 8), nn.ReLU(), conv(8, 1), nn.ReLU(), conv(1, 6), head(6)
    )


@network
def looks_depthwise_divisor():
    return nn.Sequential(block(3, 12), conv(12, 3, groups=3), nn.ReLU(), conv(3, 6), head(6))


class Blur(nn.Module):
    """Anti-aliasing by a fixed kernel, with the width written into it: it is run re-indexed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("kernel", torch.full((width, 1, 3, 3), 1 / 9), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel, groups=self.width, padding=1)


@network
def blur_of_fixed_width():
    return around(lambda net, x: net.blur(x), 8, blur=Blur(8))
