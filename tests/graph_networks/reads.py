"""Forward code that reads sizes and values as Python numbers, or makes constants of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from graph_networks.parts import Net, around, block, head, network


@network
def scaled_by_mean_as_number():
    return around(lambda net, x: x * x.mean().item(), 8)


@network
def scaled_by_spread_as_float():
    return around(lambda net, x: x / (1 + float(x.std())), 8)


@network
def scaled_by_list_of_means():
    return around(lambda net, x: x * x.mean((1, 2, 3)).tolist()[0], 8)


@network
def scaled_by_mean_in_numpy():
    return around(lambda net, x: x * float(x.detach().mean((1, 2, 3)).numpy()[0]), 8)


@network
def scaled_by_one_value():
    return around(lambda net, x: x * x[0, 2, 1, 1].item(), 8)


@network
def scaled_by_sum_as_number():
    return around(lambda net, x: x * (1 + x.sum().item() / 100), 8)


@network
def threshold_on_width():
    return around(lambda net, x: x * 2 if x.shape[1] > 2 else x, 8)


@network
def threshold_on_attribute():
    return around(lambda net, x: x * 2 if net.stem[0].out_channels > 2 else x, 8)


@network
def mask_made_in_forward():
    def run(net, x):
        mask = torch.ones(1, x.shape[1], 1, 1)
        mask[:, 3:] = 0.5
        return x * mask

    return around(run, 8)


@network
def mask_that_follows_its_layer():
    def run(net, x):
        left, right = net.left(x), net.right(x)
        mask = torch.ones(1, left.shape[1] + right.shape[1], 1, 1)
        mask[:, : net.left[0].out_channels] = 0.5
        return torch.cat([left, right], 1) * mask

    return around(run, 8, out=10, left=block(8, 4), right=block(8, 6))


@network
def counted_channels():
    return around(lambda net, x: x * torch.ones(1, x.shape[1], 1, 1).cumsum(1), 8)


@network
def rolled_by_half_the_width():
    return around(lambda net, x: F.pad(x.roll(x.shape[1] // 2, 2), (0, 0, 0, 3)), 8)


@network
def squeezed_map():
    def run(net, x):
        return net.last(net.pool(net.stem(x)).squeeze())

    return Net(run, stem=block(3, 8), pool=nn.AdaptiveAvgPool2d(1), last=nn.Linear(8, 5))


@network
def memory_filled_later():
    def run(net, x):
        memory = torch.empty_like(x)
        memory.copy_(x * 2)
        return memory

    return around(run, 8)


@network
def branch_on_the_input():
    def run(net, x):
        return net.head(net.stem(x * 2 if x.mean() > 10 else x))

    return Net(run, stem=block(3, 8), head=head(8))
