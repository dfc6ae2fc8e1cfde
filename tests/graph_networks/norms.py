"""Norms and loose per-channel parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from graph_networks.parts import (
    around,
    block,
    conv,
    head,
    network,
)


def _normed(norm: nn.Module, width: int = 8) -> nn.Module:
    return nn.Sequential(conv(3, width), norm, nn.ReLU(), block(width, 6), head(6))


@network
def group_norm_many():
    return _normed(nn.GroupNorm(4, 8))


@network
def group_norm_few():
    return _normed(nn.GroupNorm(2, 16), 16)


@network
def group_norm_one():
    return _normed(nn.GroupNorm(1, 8))


@network
def group_norm_without_affine():
    return _normed(nn.GroupNorm(4, 8, affine=False))


@network
def instance_norm():
    return _normed(nn.InstanceNorm2d(8))


@network
def instance_norm_affine_tracked():
    return _normed(nn.InstanceNorm2d(8, affine=True, track_running_stats=True))


@network
def batch_norm_without_affine():
    return _normed(nn.BatchNorm2d(8, affine=False))


@network
def batch_norm_without_statistics():
    return _normed(nn.BatchNorm2d(8, track_running_stats=False))


@network
def layer_norm_over_map():
    return _normed(nn.LayerNorm((8, 8, 8)))


@network
def layer_norm_over_space():
    return _normed(nn.LayerNorm((8, 8)))


@network
def layer_norm_channels_last():
    return around(lambda net, x: net.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 8, norm=nn.LayerNorm(8))


@network
def layer_norm_without_affine():
    norm = nn.LayerNorm(8, elementwise_affine=False)
    return around(lambda net, x: net.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), 8, norm=norm)


@network
def convnext_block():
    def run(net, x):
        out = net.deep(x).permute(0, 2, 3, 1)
        out = net.scale * net.narrow(F.gelu(net.widen(net.norm(out))))
        return x + out.permute(0, 3, 1, 2)

    return around(
        run,
        8,
        deep=conv(8, 8, groups=8),
        norm=nn.LayerNorm(8),
        widen=nn.Linear(8, 16),
        narrow=nn.Linear(16, 8),
        scale=nn.Parameter(torch.ones(8)),
    )


@network
def layer_scale():
    return around(
        lambda net, x: x + net.scale * net.body(x),
        8,
        body=conv(8, 8),
        scale=nn.Parameter(torch.ones(8, 1, 1)),
    )


@network
def scale_reshaped():
    def run(net, x):
        return x * net.scale.view(1, -1, 1, 1) + net.shift[None, :, None, None].expand_as(x)

    return around(run, 8, scale=nn.Parameter(torch.ones(8)), shift=nn.Parameter(torch.zeros(8)))


@network
def scalar_parameter():
    return around(
        lambda net, x: x * net.scale + net.shift,
        8,
        scale=nn.Parameter(torch.ones(1)),
        shift=nn.Parameter(torch.tensor(0.5)),
    )


@network
def scale_part_of_parameter():
    return around(lambda net, x: x * net.scale[:8].view(8, 1, 1), 8, scale=nn.Parameter(torch.ones(12)))


@network
def prelu():
    return nn.Sequential(conv(3, 8), nn.PReLU(8), conv(8, 6), nn.PReLU(), head(6))


@network
def buffer_by_channel():
    model = around(lambda net, x: x * net.gain + net.bias, 8)
    model.register_buffer("gain", torch.linspace(0.5, 1.5, 8).view(1, 8, 1, 1))
    model.register_buffer("bias", torch.linspace(0, 1, 8).view(8, 1, 1), persistent=False)
    return model


@network
def positional_map():
    return around(lambda net, x: x + net.position, 8, position=nn.Parameter(torch.zeros(1, 8, 8, 8)))
