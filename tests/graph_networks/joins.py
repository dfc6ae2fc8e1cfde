"""Residual sums and concatenation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graph_networks.parts import (
    Apply,
    Net,
    around,
    block,
    conv,
    head,
    network,
)


@network
def residual_identity():
    return around(lambda net, x: F.relu(x + net.body(x)), 8, body=nn.Sequential(block(8, 6), conv(6, 8)))


@network
def residual_in_place():
    def run(net, x):
        out = net.body(x)
        out += x
        return F.relu_(out)

    return around(run, 8, body=nn.Sequential(block(8, 6), conv(6, 8)))


@network
def residual_projection():
    body = nn.Sequential(block(8, 6), conv(6, 10))
    return around(lambda net, x: F.relu(net.short(x) + net.body(x)), 8, 10, body=body, short=conv(8, 10, 1))


def _pad(x: Tensor) -> Tensor:
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))


@network
def residual_pad_in_lambda_module():
    body = nn.Sequential(block(8, 6, stride=2), conv(6, 12))
    return around(lambda net, x: F.relu(net.short(x) + net.body(x)), 8, 12, body=body, short=Apply(_pad))


@network
def residual_pad_module_at_two_widths():
    """One module, and in it one literal pad, stands at two widths: no wrapper can hold both."""

    def run(net: Net, x: Tensor) -> Tensor:
        wider = net.first(x) + net.pad(x)
        return net.second(wider) + net.pad(wider)

    pad = Apply(lambda x: F.pad(x, (0, 0, 0, 0, 2, 2)))
    return around(run, 4, 12, pad=pad, first=block(4, 8), second=block(8, 12))


@network
def residual_pad_inline_literal():
    body = nn.Sequential(block(8, 6, stride=2), conv(6, 12))
    return around(lambda net, x: F.relu(_pad(x) + net.body(x)), 8, 12, body=body)


@network
def residual_pad_inline_dynamic():
    def run(net, x):
        out = net.body(x)
        extra = out.shape[1] - x.shape[1]
        return F.relu(out + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra // 2, extra - extra // 2)))

    return around(run, 8, 12, body=nn.Sequential(block(8, 6, stride=2), conv(6, 12)))


@network
def residual_pad_by_concatenated_zeros():
    def run(net, x):
        short = x[:, :, ::2, ::2]
        return F.relu(net.body(x) + torch.cat([short, torch.zeros_like(short)], 1))

    return around(run, 8, 16, body=nn.Sequential(block(8, 6, stride=2), conv(6, 16)))


@network
def cat_dense():
    def run(net, x):
        for layer in net.layers:
            x = torch.cat([x, layer(x)], 1)
        return x

    layers = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(4 + 3 * i), conv(4 + 3 * i, 3)) for i in range(3))
    return around(run, 4, 13, layers=layers)


@network
def cat_inception():
    def run(net, x):
        return torch.cat([net.one(x), net.three(x), net.pool(x)], 1)

    pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(6, 3, 1))
    three = nn.Sequential(block(6, 4, 1), block(4, 5))
    return around(run, 6, 12, one=conv(6, 4, 1), three=three, pool=pool)


@network
def cat_with_itself():
    return around(lambda net, x: torch.cat([x, x], 1), 6, 12)


@network
def cat_padded_with_constant():
    def run(net, x):
        n, _, h, w = x.shape
        return torch.cat([x, x.new_ones(n, 2, h, w)], 1)

    return around(run, 6, 8)


@network
def cat_along_height():
    return around(lambda net, x: torch.cat([x, net.body(x)], 2), 6, body=conv(6, 6))


@network
def cat_with_input():
    return Net(
        lambda net, x: net.head(net.tail(torch.cat([net.stem(x), x], 1))),
        stem=block(3, 6),
        tail=conv(9, 6),
        head=head(6),
    )


@network
def unet():
    def run(net, x):
        skip = net.down(x)
        return net.out(torch.cat([skip, net.up(net.deep(F.max_pool2d(skip, 2)))], 1))

    up = nn.ConvTranspose2d(8, 5, 2, stride=2)
    return Net(run, down=block(3, 6), deep=block(6, 8), up=up, out=conv(11, 2))
