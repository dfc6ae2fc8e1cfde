"""Shared modules and weights; several inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

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


@network
def module_called_twice():
    return around(lambda net, x: F.relu(net.same(F.relu(net.same(x)))), 8, same=conv(8, 8))


@network
def module_called_on_two_widths_of_input():
    def run(net, x):
        return net.same(net.left(x)) + net.same(net.right(x))

    return around(run, 8, 6, left=conv(8, 4), right=conv(8, 4), same=conv(4, 6))


@network
def shared_weights():
    first, second = conv(8, 8, bias=False), conv(8, 8)
    second.weight = first.weight
    return around(lambda net, x: net.two(F.relu(net.one(x))), 8, one=first, two=second)


@network
def shared_norm():
    norm = nn.BatchNorm2d(8)
    return around(
        lambda net, x: net.norm(net.two(net.norm(net.one(x)))), 8, one=conv(8, 8), two=conv(8, 8), norm=norm
    )


@network
def same_module_under_two_names():
    shared = conv(8, 8)
    return around(lambda net, x: net.two(F.relu(net.one(x))), 8, one=shared, two=shared)


@network
def several_inputs():
    model = Net(
        lambda net, x, y: net.head(torch.cat([net.left(x), net.right(y)], 1)),
        left=block(3, 6),
        right=block(1, 4),
        head=head(10),
    )
    return model, (torch.zeros(2, 3, 8, 8), torch.zeros(2, 1, 8, 8))


@network
def keyword_inputs():
    model = Net(lambda net, image, scale: net.head(net.stem(image) * scale), stem=block(3, 6), head=head(6))
    return model, {"image": torch.zeros(2, 3, 8, 8), "scale": torch.ones(2, 1, 1, 1)}


@network
def tuple_output():
    return Net(
        lambda net, x: (net.head(net.body(net.stem(x))), net.side(net.stem(x))),
        stem=block(3, 8),
        body=block(8, 6),
        head=head(6),
        side=conv(8, 2),
    )


@network
def feature_output():
    def run(net, x):
        features = net.stem(x)
        return {"logits": net.head(net.body(features)), "features": features}

    return Net(run, stem=block(3, 8), body=block(8, 6), head=head(6))


@dataclass
class Answer:
    """An output that is no container torch knows of."""

    logits: Tensor
    features: Tensor


@network
def dataclass_output():
    def run(net, x):
        features = net.stem(x)
        return Answer(net.head(net.body(features)), features)

    return Net(run, stem=block(3, 8), body=block(8, 6), head=head(6))


class Box:
    """An output object that hides its tensors in attributes."""

    def __init__(self, tensor: Tensor) -> None:
        self.inner = [tensor]


@network
def object_output():
    return Net(
        lambda net, x: (net.head(net.body(net.stem(x))), Box(net.body(net.stem(x)))),
        stem=block(3, 8),
        body=block(8, 6),
        head=head(6),
    )


@network
def parameter_read_by_layers():
    """A learned map and learned tokens in place of an input, as generators have them."""

    def run(net, x):
        scale = net.linear(net.tokens).mean(0)[:, None, None]
        return net.head(F.relu(net.second(F.relu(net.first(net.start)))) + net.stem(x) * scale)

    return Net(
        run,
        start=nn.Parameter(torch.randn(1, 8, 8, 8)),
        tokens=nn.Parameter(torch.randn(10, 8)),
        first=conv(8, 8),
        second=conv(8, 6),
        linear=nn.Linear(8, 6),
        stem=conv(3, 6),
        head=head(6),
    )


class BareWeights(nn.Module):
    """Convolutions whose weights are parameters of the module around them, and one weight used both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(8, 6, 3, 3) / 7)
        self.upward = nn.Parameter(torch.randn(8, 3, 2, 2) / 4)  # transposed, in two groups
        self.code = conv(6, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.conv2d(x, self.kernel, padding=1))
        x = F.conv_transpose2d(x, self.upward, stride=2, groups=2)
        return F.conv_transpose2d(F.relu(self.code(x)), self.code.weight, padding=1)


@network
def bare_weights():
    def run(net, x):
        return net.head(net.tail(net.body(F.relu(F.conv2d(x, net.weight, padding=1)))))

    return Net(
        run,
        weight=nn.Parameter(torch.randn(6, 3, 3, 3) / 5),
        body=BareWeights(),
        tail=block(6, 6),
        head=head(6),
    )


@network
def bare_weights_computed_in_forward():
    """Two convolutions of one module, neither with a weight that has a name."""

    def run(net, x):
        x = F.relu(F.conv2d(x, net.one.sort(0).values, padding=1))
        return net.head(net.tail(F.relu(F.conv2d(x, net.two.sort(0).values, padding=1))))

    one, two = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(6, 4, 3, 3))
    return Net(run, one=one, two=two, tail=block(6, 6), head=head(6))
