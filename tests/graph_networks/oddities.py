"""Training mode, hooks, and what does not fit elsewhere."""

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


@network
def dropout():
    return nn.Sequential(
        block(3, 8),
        nn.Dropout2d(0.3),
        block(8, 6),
        nn.Dropout(0.3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Dropout(0.5),
        nn.Linear(6, 5),
    )


@network
def dropout1d():
    model = nn.Sequential(
        nn.Conv1d(3, 8, 3), nn.Dropout1d(0.3), nn.AlphaDropout(0.2), nn.Conv1d(8, 4, 3), nn.Flatten()
    )
    return model, torch.zeros(2, 3, 10)


class RowDrop(nn.Module):
    """Stochastic depth by rows of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.empty((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype).bernoulli_(0.8)
        return x * keep / 0.8


@network
def stochastic_depth_rows():
    return around(lambda net, x: x + net.drop(net.body(x)), 8, body=block(8, 8), drop=RowDrop())


@network
def stochastic_depth_whole_block():
    def run(net, x):
        if net.training and torch.rand(()).item() < 0.5:
            return x
        return x + net.body(x)

    return around(run, 8, body=block(8, 8))


@network
def auxiliary_head_in_training():
    def run(net, x):
        x = net.stem(x)
        out = net.head(net.body(x))
        return (out, net.aux(x)) if net.training else out

    return Net(run, stem=block(3, 8), body=block(8, 6), head=head(6), aux=nn.Sequential(block(8, 4), head(4)))


@network
def frozen_and_unused():
    model = around(lambda net, x: net.body(x), 8, body=conv(8, 8), unused=conv(4, 4))
    model.loose = nn.Parameter(torch.ones(3))
    model.body.weight.requires_grad_(False)
    return model


@network
def hooks_on_model():
    model = nn.Sequential(block(3, 8), block(8, 6), head(6))
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    model.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return model


@network
def noise_in_training():
    return around(lambda net, x: x + torch.randn_like(x) * 0.1 if net.training else x, 8)


@network
def unknown_operation():
    return around(lambda net, x: torch.fft.fft2(x, dim=(1, 2)).real, 8)


@network
def sorted_channels():
    return around(lambda net, x: x.sort(dim=1).values, 8)


@network
def matrix_inverse_of_channels():
    def run(net, x):
        gram = torch.einsum("nchw,ndhw->ncd", x, x)
        return x + gram.mean((1, 2))[:, None, None, None]

    return around(run, 8)


@network
def embedded_constants():
    def run(net, x):
        grid = torch.linspace(-1, 1, x.shape[-1], device=x.device, dtype=x.dtype)
        return x + grid * torch.arange(x.shape[1], device=x.device).view(-1, 1, 1)

    return around(run, 8)


@network
def python_list_of_functions():
    return Net(
        lambda net, x: net.parts["head"](net.parts["tail"](net.act[0](net.parts["stem"](x)))),
        act=[F.relu],
        parts=nn.ModuleDict({"stem": block(3, 8), "tail": block(8, 6), "head": head(6)}),
    )


@network
def class_map_output():
    return nn.Sequential(block(3, 8), block(8, 6), conv(6, 4, 1), nn.Softmax(1))


class CachedScale(nn.Module):
    """Works a scale out once in evaluation mode, as attribute or buffer; training mode drops it."""

    def __init__(self, width: int, *, as_buffer: bool) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.linspace(-1, 1, width))
        if as_buffer:
            self.register_buffer("cache", None, persistent=False)
        else:
            self.cache = None

    def train(self, mode: bool = True) -> CachedScale:
        if mode:
            self.cache = None
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x * self.log.exp().view(-1, 1, 1)
        if self.cache is None:
            self.cache = self.log.detach().exp().view(-1, 1, 1)
        return x * self.cache


@network
def cached_attribute_in_evaluation():
    return around(lambda net, x: net.scale(x), 8, scale=CachedScale(8, as_buffer=False))


@network
def cached_buffer_in_evaluation():
    return around(lambda net, x: net.scale(x), 8, scale=CachedScale(8, as_buffer=True))
