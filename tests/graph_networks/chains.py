"""Plain chains of layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_networks.parts import (
    Net,
    block,
    conv,
    head,
    network,
)


@network
def plain_chain():
    return nn.Sequential(block(3, 8), nn.MaxPool2d(2), block(8, 6), head(6))


@network
def bias_without_norm():
    return nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 6), nn.Tanh(), head(6))


@network
def activations_that_move_zero():
    return nn.Sequential(conv(3, 8), nn.Sigmoid(), conv(8, 6), nn.Softplus(), conv(6, 6), head(6))


@network
def rare_activations():
    return nn.Sequential(
        conv(3, 8),
        nn.Hardswish(inplace=True),
        conv(8, 6),
        nn.LogSigmoid(),
        conv(6, 6),
        nn.GLU(1),
        conv(3, 6),
        head(6),
    )


@network
def flatten_map_into_linear():
    return nn.Sequential(
        block(3, 8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 7), nn.ReLU(), nn.Linear(7, 5)
    )


@network
def flatten_adaptive_pool():
    return nn.Sequential(block(3, 8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))


@network
def dilated_and_strided():
    dilated = nn.Conv2d(8, 6, 3, padding=2, dilation=2, stride=2)
    return nn.Sequential(block(3, 8), dilated, nn.ReLU(), head(6))


@network
def circular_and_reflected_padding():
    return nn.Sequential(
        conv(3, 8, padding_mode="circular"), nn.ReLU(), conv(8, 6, padding_mode="reflect"), nn.ReLU(), head(6)
    )


@network
def circular_padding_inside():
    inner = conv(8, 6, padding_mode="circular")
    return nn.Sequential(block(3, 8), inner, nn.ReLU(), conv(6, 4, 5, padding_mode="circular"), head(4))


@network
def forward_in_inference_mode():
    """Torch hands over whole operations there that it takes apart elsewhere."""

    def run(net: Net, x: Tensor) -> Tensor:
        if net.training:  # without gradients nothing could be learnt
            return net.body(x)
        with torch.inference_mode():
            return net.body(x)

    return Net(run, body=nn.Sequential(block(3, 8), block(8, 6), nn.Conv2d(6, 4, 1), head(4)))


@network
def conv1d():
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(8, 6, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    return model, torch.zeros(2, 3, 16)


@network
def conv3d():
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 6, 1),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    return model, torch.zeros(2, 3, 5, 5, 5)


@network
def transposed():
    return nn.Sequential(
        block(3, 8), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2)
    )


@network
def upsampling():
    return nn.Sequential(
        block(3, 8),
        nn.Upsample(scale_factor=2),
        conv(8, 6),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        conv(6, 2),
    )


@network
def local_response_norm():
    return nn.Sequential(conv(3, 8), nn.LocalResponseNorm(3), conv(8, 6), head(6))
