"""Weights computed in the forward code, products written as einsum, and norms written out by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from graph_networks.parts import (
    Net,
    around,
    block,
    conv,
    head,
    network,
)


class Masked(nn.Conv2d):
    """A convolution that multiplies its weight by a mask, a buffer of the same shape."""

    def __init__(self, *args: int, **options: int) -> None:
        super().__init__(*args, **options)
        self.register_buffer("mask", (torch.rand(self.weight.shape) < 0.7).float())

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.mask * self.weight, self.bias)


class Standardised(nn.Conv2d):
    """Weight standardisation through batch norm with a gain, as in normaliser-free networks."""

    def __init__(self, *args: int, **options: int) -> None:
        super().__init__(*args, **options)
        self.gain = nn.Parameter(torch.full((self.out_channels, 1, 1, 1), 1.3))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.reshape(1, self.out_channels, -1)
        scale = (self.gain * 0.5).view(-1)
        weight = F.batch_norm(flat, None, None, weight=scale, training=True, momentum=0.0, eps=1e-6)
        return self._conv_forward(x, weight.reshape_as(self.weight), self.bias)


@network
def weight_times_mask():
    return nn.Sequential(block(3, 8), Masked(8, 6, 3, padding=1), nn.ReLU(), block(6, 4), head(4))


@network
def weight_times_mask_depthwise():
    deep = Masked(8, 8, 3, padding=1, groups=8)
    return nn.Sequential(block(3, 8), deep, nn.ReLU(), block(8, 4), head(4))


@network
def weight_pruned_by_torch():
    body = prune.random_unstructured(conv(8, 6), "weight", amount=0.4)
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


@network
def weight_scaled_by_filter():
    def run(net, x):
        scale = (net.gain / (net.spread + 0.1).sqrt()).view(-1, 1, 1, 1)
        return F.conv2d(x, net.body.weight * scale, net.shift - net.middle * net.gain, padding=1)

    model = around(run, 8, 6, body=conv(8, 6), gain=nn.Parameter(torch.ones(6)))
    model.register_buffer("spread", torch.rand(6) + 0.5)
    model.register_buffer("middle", torch.randn(6))
    model.shift = nn.Parameter(torch.zeros(6))
    return model


@network
def weight_of_linear_masked():
    def run(net, x):
        x = net.tail(net.stem(x)).mean((2, 3))
        return F.linear(x, net.head.weight * net.mask, net.head.bias)

    model = Net(run, stem=block(3, 8), tail=block(8, 6), head=nn.Linear(6, 5))
    model.register_buffer("mask", (torch.rand(5, 6) < 0.7).float())
    return model


@network
def weight_norm():
    return nn.Sequential(parametrizations.weight_norm(conv(3, 8)), nn.ReLU(), conv(8, 6), head(6))


@network
def weight_norm_inside():
    body = parametrizations.weight_norm(conv(8, 6))
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


@network
def weight_norm_depthwise():
    deep = parametrizations.weight_norm(conv(8, 8, groups=8))
    return nn.Sequential(block(3, 8), deep, nn.ReLU(), block(8, 4), head(4))


@network
def weight_norm_by_hook():
    body = nn.utils.weight_norm(conv(8, 6))
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


@network
def weight_norm_by_input():
    body = parametrizations.weight_norm(conv(8, 6), dim=1)
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


@network
def weight_norm_of_all():
    body = parametrizations.weight_norm(conv(8, 6), dim=None)
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


class Clipped(nn.Module):
    """A parametrisation that treats each element by itself."""

    def forward(self, weight: Tensor) -> Tensor:
        return torch.tanh(weight) * 0.5


@network
def weight_parametrised():
    body = conv(8, 8, groups=8)
    parametrize.register_parametrization(body, "weight", Clipped())
    parametrize.register_parametrization(body, "bias", Clipped())
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(8, 4), head(4))


@network
def weight_spectral_norm():
    body = parametrizations.spectral_norm(conv(8, 6))
    return nn.Sequential(block(3, 8), body, nn.ReLU(), block(6, 4), head(4))


@network
def weight_standardised():
    def run(net, x):
        weight = net.body.weight
        weight = weight - weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, net.body.bias, padding=1)

    return around(run, 8, 6, body=conv(8, 6))


@network
def weight_standardised_by_variance():
    def run(net, x):
        spread, middle = torch.var_mean(net.body.weight, dim=(1, 2, 3), keepdim=True, unbiased=False)
        weight = (net.body.weight - middle) / (spread + 1e-5).sqrt()
        return F.conv2d(x, weight, net.body.bias, padding=1)

    return around(run, 8, 6, body=conv(8, 6))


@network
def weight_standardised_by_deviation():
    def run(net, x):
        weight = net.body.weight
        spread = weight.view(weight.shape[0], -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
        return F.conv2d(x, weight / spread, net.body.bias, padding=1)

    return around(run, 8, 6, body=conv(8, 6))


@network
def weight_standardised_by_batch_norm():
    return nn.Sequential(block(3, 8), Standardised(8, 6, 3, padding=1), nn.ReLU(), block(6, 4), head(4))


@network
def weight_standardised_depthwise():
    deep = Standardised(8, 8, 3, padding=1, groups=8)
    return nn.Sequential(block(3, 8), deep, nn.ReLU(), block(8, 4), head(4))


@network
def weight_view_literal():
    def run(net, x):
        weight = net.body.weight.view(6, 72) * 0.5
        return F.conv2d(x, weight.view(6, 8, 3, 3), net.body.bias, padding=1)

    return around(run, 8, 6, body=conv(8, 6))


@network
def weight_row_of_another():
    """One row of a table scales channels, a column of it others: neither may lose what is picked."""

    def run(net, x):
        return net.body(x * net.table[1].view(-1, 1, 1)) * net.table[:, 2].view(-1, 1, 1)

    return around(run, 8, 6, body=conv(8, 6), table=nn.Parameter(torch.randn(6, 8)))


def _with_image(run, width: int, out: int, **parts) -> Net:
    """The stem's channels and the image itself, then the function.

    Three channels stay whatever is cut: torch runs an einsum over a single one without a product.
    """

    def forward(net, x):
        return net.head(net.tail(run(net, torch.cat([net.stem(x), x], 1))))

    return Net(forward, stem=block(3, width), **parts, tail=block(out, 6), head=head(6))


@network
def einsum_pointwise():
    mix = nn.Parameter(torch.randn(6, 11))
    return _with_image(lambda net, x: torch.einsum("nchw,oc->nohw", x, net.mix), 8, 6, mix=mix)


@network
def einsum_parameter_first():
    mix = nn.Parameter(torch.randn(6, 11))
    return _with_image(lambda net, x: torch.einsum("oc,nchw->nohw", net.mix, x), 8, 6, mix=mix)


@network
def einsum_masked():
    mix = nn.Parameter(torch.randn(6, 11))
    model = _with_image(lambda net, x: torch.einsum("nchw,oc->nohw", x, net.mix * net.mask), 8, 6, mix=mix)
    model.register_buffer("mask", (torch.rand(6, 11) < 0.7).float())
    return model


@network
def einsum_heads():
    def run(net, x):
        return torch.einsum("nchw,pcd->npdhw", x, net.mix).flatten(1, 2)

    return _with_image(run, 8, 6, mix=nn.Parameter(torch.randn(2, 11, 3)))


@network
def einsum_scale():
    return around(
        lambda net, x: torch.einsum("nchw,c->nchw", x, net.gain), 8, gain=nn.Parameter(torch.ones(8))
    )


@network
def einsum_to_one_map():
    def run(net, x):
        return x * torch.einsum("nchw,c->nhw", x, net.gain).sigmoid().unsqueeze(1)

    return _with_image(run, 8, 11, gain=nn.Parameter(torch.randn(11)))


@network
def einsum_summed_weight():
    def run(net, x):
        return torch.einsum("nchw,ocd->nohw", x, net.mix)

    return _with_image(run, 8, 6, mix=nn.Parameter(torch.randn(6, 11, 2)))


@network
def product_with_parameter_on_the_left():
    def run(net, x):
        return (net.mix @ x.flatten(2)).unflatten(2, x.shape[2:])

    return around(run, 8, 6, mix=nn.Parameter(torch.randn(6, 8)))


class ChannelsFirstNorm(nn.Module):
    """Layer norm over the channels of a map, written out as in ConvNeXt's own code."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        middle = x.mean(1, keepdim=True)
        spread = (x - middle).pow(2).mean(1, keepdim=True)
        x = (x - middle) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ResponseNorm(nn.Module):
    """Global response normalisation, as in ConvNeXt v2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(1, width, 1, 1))
        self.beta = nn.Parameter(torch.randn(1, width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        strength = torch.norm(x, p=2, dim=(2, 3), keepdim=True)
        share = strength / (strength.mean(dim=1, keepdim=True) + 1e-6)
        return self.gamma * (x * share) + self.beta + x


@network
def layer_norm_by_hand():
    return around(lambda net, x: net.norm(x), 8, norm=ChannelsFirstNorm(8))


@network
def response_norm():
    return around(lambda net, x: net.norm(x), 8, norm=ResponseNorm(8))


@network
def root_mean_square_norm():
    def run(net, x):
        return x * torch.rsqrt(x.square().mean(1).unsqueeze(1) + 1e-5) * net.gain

    return around(run, 8, gain=nn.Parameter(torch.ones(8, 1, 1)))


@network
def variance_over_channels_and_space():
    def run(net, x):
        spread, middle = torch.var_mean(x, (1, 2, 3), keepdim=True)
        return (x - middle).div_((spread + 1e-5).sqrt())

    return around(run, 8)


@network
def unbiased_variance_over_channels():
    return around(lambda net, x: x / (x.var(1, keepdim=True) + 0.1), 8)


@network
def unit_length_over_channels():
    return around(lambda net, x: F.normalize(x, dim=1), 8)


@network
def gate_by_mean_over_channels():
    return around(lambda net, x: x * x.mean(1, keepdim=True).sigmoid(), 8)


@network
def map_spread_over_channels():
    """A map of one channel is expanded to the width of another."""

    def run(net, x):
        return x * net.map(x.sum(1, keepdim=True)).detach().expand_as(x)

    return around(run, 8, map=nn.AvgPool2d(3, 1, 1))


@network
def map_spread_over_literal_channels():
    return around(lambda net, x: x * x.sum(1, keepdim=True).expand(-1, 8, -1, -1), 8)


@network
def mean_over_channels_of_another():
    return around(lambda net, x: x * net.other(x).mean(1, keepdim=True), 8, other=block(8, 8))


@network
def mean_over_channels_added_to_a_layer():
    return around(lambda net, x: net.body(x) + x.mean(1, keepdim=True), 8, 6, body=conv(8, 6))


@network
def mean_over_channels_as_output():
    def run(net, x):
        return net.tail(net.stem(x)).mean(1)

    return Net(run, stem=block(3, 8), tail=block(8, 6))


@network
def mean_over_channels_read_by_a_layer():
    return around(lambda net, x: net.body(x.mean(1, keepdim=True)), 8, 6, body=conv(1, 6))


@network
def weight_merged_of_two_kernels():
    """As RepVGG is deployed: a 1x1 kernel is padded and added to a 3x3 kernel, and their biases are."""

    def run(net: Net, x: Tensor) -> Tensor:
        weight = net.wide.weight + F.pad(net.narrow.weight, (1, 1, 1, 1))
        return F.relu(F.conv2d(x, weight, net.wide.bias + net.narrow.bias, padding=1))

    return around(run, 8, 6, wide=conv(8, 6), narrow=conv(8, 6, 1))


@network
def weight_merged_the_other_way_round():
    def run(net: Net, x: Tensor) -> Tensor:
        return F.relu(F.conv2d(x, F.pad(net.narrow.weight, [1] * 4) + net.wide.weight, padding=1))

    return around(run, 8, 6, wide=conv(8, 6, bias=False), narrow=conv(8, 6, 1, bias=False))


@network
def position_embedding_resampled():
    """As vision transformers on images of another size, by tokens and by maps."""

    def run(net: Net, x: Tensor) -> Tensor:
        tokens = net.tokens.reshape(1, 4, 4, -1).permute(0, 3, 1, 2)
        x = x + F.interpolate(tokens, size=x.shape[2:], mode="bicubic")
        return x * F.interpolate(net.maps, size=x.shape[2:], mode="bilinear")

    tokens, maps = nn.Parameter(torch.randn(1, 16, 8)), nn.Parameter(torch.randn(1, 8, 2, 2))
    return around(run, 8, tokens=tokens, maps=maps)


@network
def blur_by_one_kernel_for_all():
    """Blur pooling: one small kernel, repeated for every channel there is."""

    def run(net: Net, x: Tensor) -> Tensor:
        kernel = net.kernel.expand(x.shape[1], 1, 3, 3)
        return F.conv2d(x, kernel, stride=2, padding=1, groups=x.shape[1])

    return around(run, 8, kernel=nn.Parameter(torch.rand(1, 1, 3, 3), requires_grad=False))


@network
def blur_by_a_repeated_kernel():
    """The same with a copy of the kernel for every channel."""

    def run(net: Net, x: Tensor) -> Tensor:
        kernel = net.kernel.repeat(x.shape[1], 1, 1, 1)
        return F.conv2d(x, kernel, stride=2, padding=1, groups=x.shape[1])

    return around(run, 8, kernel=nn.Parameter(torch.rand(1, 1, 3, 3), requires_grad=False))
