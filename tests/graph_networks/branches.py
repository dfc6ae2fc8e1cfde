"""Networks with branches that can go altogether, beyond those of `joins`."""

import torch
from torch import nn

from graph_networks.parts import Net, around, block, conv, head, network


@network
def bottleneck_residual():
    """Two sets of filters in one branch: with either, the other goes."""
    return around(
        lambda net, x: (x + net.bn(net.expand(net.middle(net.reduce(x))))).relu(),
        8,
        reduce=block(8, 4, 1),
        middle=block(4, 5),
        expand=conv(5, 8, 1, bias=False),
        bn=nn.BatchNorm2d(8),
    )


@network
def preactivation_residual():
    """The norm before the first layer reads what lives on, for a branch that is gone."""
    return around(
        lambda net, x: x + net.second(net.bn2(net.first(net.bn1(x).relu())).relu()),
        8,
        bn1=nn.BatchNorm2d(8),
        first=conv(8, 6, bias=False),
        bn2=nn.BatchNorm2d(6),
        second=conv(6, 8, bias=False),
    )


@network
def inverted_gated_residual():
    """Expansion, depthwise layer, gate, projection: the gate may go alone, or all of them."""

    def run(net, x):
        y = net.depthwise(net.expand(x))
        gate = net.restore(net.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)).relu()).sigmoid()
        return x + net.bn(net.project(y * gate))

    return around(
        run,
        6,
        expand=block(6, 12, 1),
        depthwise=block(12, 12, groups=12),
        squeeze=conv(12, 3, 1),
        restore=conv(3, 12, 1),
        project=conv(12, 6, 1, bias=False),
        bn=nn.BatchNorm2d(6),
    )


@network
def dense_bottleneck_layer():
    """A DenseNet layer: without its growth nobody reads its bottleneck, nor the norm before it."""
    return around(
        lambda net, x: torch.cat([x, net.growth(net.bn2(net.narrow(net.bn1(x).relu())).relu())], 1),
        6,
        9,
        bn1=nn.BatchNorm2d(6),
        narrow=conv(6, 8, 1, bias=False),
        bn2=nn.BatchNorm2d(8),
        growth=conv(8, 3, bias=False),
    )


@network
def inception_in_a_residual():
    """Branches inside a branch: each may go, and all with what joins them."""
    return around(
        lambda net, x: x + net.join(torch.cat([net.small(x), net.large(x)], 1)),
        6,
        small=block(6, 4, 1),
        large=nn.Sequential(block(6, 3, 1), block(3, 5)),
        join=conv(9, 6, 1),
    )


@network
def auxiliary_head_on_a_branch():
    """An output that only training mode has reads a branch that evaluation could do without."""

    def run(net, x):
        x = net.stem(x)
        y = net.first(x)
        out = net.head(x + net.second(y))
        return (out, net.auxiliary(y)) if net.training else out

    return Net(run, stem=block(3, 6), first=block(6, 5), second=conv(5, 6), auxiliary=head(5), head=head(6))


@network
def strided_branches_of_other_sizes():
    """Pooling, strides, dilation and a transposed convolution: stand-ins must give their sizes."""

    def run(net, x):
        down = net.down(x)
        return net.up(net.thin(net.pool(down))) + net.side(x) + down

    return around(
        run,
        6,
        down=conv(6, 6, stride=2),
        pool=nn.MaxPool2d(3, 2, ceil_mode=True, padding=1),
        thin=block(6, 4, dilation=1),
        up=nn.ConvTranspose2d(4, 6, 2, stride=2, output_padding=0, padding=1),
        side=nn.Sequential(conv(6, 5, 5), nn.AvgPool2d(2), conv(5, 6, 1)),
    )


@network
def residual_of_sequences():
    """One dimension, norms with group statistics."""
    net = Net(
        lambda net, x: net.head((net.stem(x) + net.second(net.norm(net.first(net.stem(x))).relu())).mean(-1)),
        stem=nn.Conv1d(3, 8, 3, padding=1),
        first=nn.Conv1d(8, 6, 3, padding=1),
        norm=nn.GroupNorm(2, 6),
        second=nn.Conv1d(6, 8, 3, padding=1),
        head=nn.Linear(8, 4),
    )
    return net, torch.zeros(2, 3, 12)


class NormAndActivation(nn.BatchNorm2d):
    """A batch norm with its activation inside, as timm has them."""

    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(super().forward(x))


@network
def residual_of_norms_with_activations():
    """What such a norm answers to nothing is not worked out beforehand, but run."""
    return around(
        lambda net, x: x + net.norm2(net.second(net.norm1(net.first(x)))),
        8,
        first=conv(8, 6, bias=False),
        norm1=NormAndActivation(6),
        second=conv(6, 8, bias=False),
        norm2=NormAndActivation(8),
    )


@network
def residual_of_group_norms():
    """Whole groups go, and with the branch all of them."""
    return around(
        lambda net, x: x + net.second(net.norm(net.first(x)).relu()),
        8,
        first=conv(8, 6),
        norm=nn.GroupNorm(3, 6),
        second=conv(6, 8),
    )
