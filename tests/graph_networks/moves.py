"""Forward methods that move channels about, gate or broadcast them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graph_networks.parts import (
    Net,
    around,
    block,
    conv,
    head,
    network,
)


def _shuffle(x: Tensor, groups: int = 2) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


@network
def channel_shuffle_by_view():
    return around(lambda net, x: _shuffle(net.body(x)), 8, 8, body=block(8, 8, groups=2))


@network
def channel_shuffle_module():
    return nn.Sequential(block(3, 8), nn.ChannelShuffle(2), block(8, 6), head(6))


@network
def shuffle_unit():
    def run(net, x):
        left, right = x.chunk(2, dim=1)
        return _shuffle(torch.cat([left, net.body(right)], 1))

    return around(run, 8, 8, body=nn.Sequential(block(4, 4, 1), conv(4, 4, groups=4), block(4, 4, 1)))


@network
def shuffle_of_many_groups():
    return around(lambda net, x: _shuffle(x, 4), 8)


@network
def pixel_shuffle():
    return nn.Sequential(block(3, 8), conv(8, 16), nn.PixelShuffle(2), conv(4, 2))


@network
def pixel_unshuffle():
    return nn.Sequential(block(3, 4), nn.PixelUnshuffle(2), block(16, 6), head(6))


@network
def chunk_halves():
    def run(net, x):
        left, right = x.chunk(2, dim=1)
        return left * torch.sigmoid(right)

    return around(run, 8, 4)


@network
def split_equal():
    def run(net, x):
        first, second = torch.split(x, 4, dim=1)
        return torch.cat([net.one(first), second], 1)

    return around(run, 8, 7, one=conv(4, 3))


@network
def split_by_own_width():
    def run(net, x):
        first, second = torch.split(x, x.shape[1] // 2, dim=1)
        return net.one(first) + net.two(second)

    return around(run, 8, one=conv(4, 8), two=conv(4, 8))


@network
def split_unequal():
    def run(net, x):
        first, second = torch.split(x, [6, 2], dim=1)
        return torch.cat([net.one(first), second], 1)

    return around(run, 8, 5, one=conv(6, 3))


@network
def slice_halves():
    def run(net, x):
        half = x.shape[1] // 2
        return net.one(x[:, :half]) + x[:, half:]

    return around(run, 8, 4, one=conv(4, 4))


@network
def slice_in_place():
    def run(net, x):
        x = x.clone()
        x[:, :3] = net.one(x[:, 3:].clone())
        return x

    return around(run, 8, one=conv(5, 3))


@network
def last_channel_picked():
    return around(lambda net, x: x * torch.sigmoid(x[:, -1:]), 8)


@network
def view_of_channel_groups():
    def run(net, x):
        n, c, h, w = x.shape
        return x.view(n, 4, c // 4, h, w).mean(1)

    return around(run, 12, 3)


@network
def view_literal():
    return Net(
        lambda net, x: net.out(F.max_pool2d(net.body(net.stem(x)), 8).view(-1, 12)),
        stem=block(3, 8),
        body=block(8, 12),
        out=nn.Linear(12, 5),
    )


@network
def view_literal_map():
    return Net(
        lambda net, x: net.out(net.body(net.stem(x)).view(-1, 6 * 8 * 8)),
        stem=block(3, 8),
        body=block(8, 6),
        out=nn.Linear(384, 5),
    )


@network
def flattened_and_back():
    def run(net, x):
        n, _, h, w = x.shape
        tokens = net.mix(x.flatten(2).transpose(1, 2))
        return tokens.transpose(1, 2).reshape(n, -1, h, w)

    return around(run, 8, 6, mix=nn.Linear(8, 6))


@network
def gate_by_convolutions():
    gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(8, 4, 1), nn.ReLU(), conv(4, 8, 1), nn.Sigmoid())
    return around(lambda net, x: x * net.gate(x), 8, gate=gate)


@network
def gate_by_linear_layers():
    def run(net, x):
        n, c = x.shape[:2]
        return x * net.gate(x.mean((2, 3))).view(n, c, 1, 1)

    gate = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8), nn.Sigmoid())
    return around(run, 8, gate=gate)


@network
def gate_expanded():
    def run(net, x):
        return x * net.gate(x).expand_as(x)

    return around(run, 8, gate=nn.Sequential(nn.AdaptiveAvgPool2d(1), conv(8, 8, 1), nn.Hardsigmoid()))


@network
def spatial_attention_map():
    def run(net, x):
        maps = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(net.map(maps))

    return around(run, 8, map=conv(2, 1))


@network
def efficient_channel_attention():
    def run(net, x):
        weights = net.mix(x.mean((2, 3)).unsqueeze(1)).squeeze(1)
        return x * torch.sigmoid(weights)[:, :, None, None]

    return around(run, 8, mix=nn.Conv1d(1, 1, 3, padding=1))


@network
def attention():
    def run(net, x):
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        query, key, value = net.project(tokens).chunk(3, -1)
        mixed = torch.softmax(query @ key.transpose(1, 2), -1) @ value
        return x + net.back(mixed).transpose(1, 2).reshape(n, c, h, w)

    return around(run, 8, project=nn.Linear(8, 24), back=nn.Linear(8, 8))


@network
def attention_reshaped_by_the_width_it_read():
    """As in MaxViT: the product is as wide as the linear layer made it, the reshape as what went in."""

    def run(net, x):
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        query, key, value = net.project(tokens).chunk(3, -1)
        scores = torch.softmax((query @ key.transpose(1, 2)).mul(0.3).add(0.1).sub(0.1), -1)
        mixed = (scores @ value).add(1).mul(2).sub(1).relu().transpose(1, 2).reshape(n, h * w, c)
        return x + net.merge(mixed).transpose(1, 2).reshape(n, -1, h, w)

    return around(run, 8, project=nn.Linear(8, 24), merge=nn.Linear(8, 8))


@network
def multi_head_attention():
    def run(net, x):
        tokens = x.flatten(2).transpose(1, 2)
        mixed, _ = net.mix(tokens, tokens, tokens)
        return mixed.transpose(1, 2).reshape(x.shape)

    return around(run, 8, mix=nn.MultiheadAttention(8, 2, batch_first=True))


@network
def linear_output_as_map():
    """A decoder: what a linear layer gives is read as a map of eight channels."""

    def run(net, x):
        code = F.relu(net.code(net.stem(x).mean((2, 3))))
        return net.out(F.relu(net.up(F.relu(net.wide(code)).view(-1, 8, 4, 4))))

    return Net(
        run,
        stem=block(3, 8),
        code=nn.Linear(8, 10),
        wide=nn.Linear(10, 128),
        up=nn.ConvTranspose2d(8, 6, 2, stride=2),
        out=conv(6, 3),
    )


@network
def linear_output_joined_as_map():
    """The same map beside another, whose channels must not suffer for it."""

    def run(net, x):
        x = net.stem(x)
        learnt = net.wide(x.mean((2, 3))).view(-1, 8, 8, 8)
        return net.out(F.relu(net.mix(torch.cat([learnt, net.side(x)], 1))))

    return Net(
        run, stem=block(3, 8), wide=nn.Linear(8, 512), side=conv(8, 6), mix=conv(14, 7), out=conv(7, 3)
    )
