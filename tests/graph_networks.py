"""Small networks for the tests of the channel graph, one for every thing a forward method may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Built = tuple[nn.Module, Any]
Builder = Callable[[], Built]
NETWORKS: dict[str, Builder] = {}
IMAGE = (2, 3, 8, 8)


def network(build: Callable[[], nn.Module | Built]) -> Builder:
    """Register a builder; one that returns only a model gets an image as its example input."""

    def complete() -> Built:
        made = build()
        return made if isinstance(made, tuple) else (made, torch.zeros(IMAGE))

    NETWORKS[build.__name__] = complete
    return complete


class Net(nn.Module):
    """A network whose forward is the function given, with the parts given as its attributes."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Any:
        return self.run(self, *args, **kwargs)


class Apply(nn.Module):
    """A module around a function, as akamaster's LambdaLayer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Conv2d:
    """A convolution that keeps the map's side."""
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def block(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    made = conv(inputs, outputs, kernel, bias=False, **options)
    return nn.Sequential(made, nn.BatchNorm2d(outputs), nn.ReLU())


def head(inputs: int, classes: int = 5) -> nn.Sequential:
    """Global pooling and a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def around(run: Callable[..., Tensor], width: int, out: int | None = None, **parts: Any) -> Net:
    """A stem of `width` filters, the function, another block and a head."""
    return Net(
        lambda net, x: net.head(net.tail(run(net, net.stem(x)))),
        stem=block(3, width),
        **parts,
        tail=block(out or width, 6),
        head=head(6),
    )


# Chains ----------------------------------------------------------------------------------------------


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


# Residual sums ---------------------------------------------------------------------------------------


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


# Concatenation ---------------------------------------------------------------------------------------


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


# Groups ----------------------------------------------------------------------------------------------


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


# Moving channels about -------------------------------------------------------------------------------


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


# Gates and broadcasting ------------------------------------------------------------------------------


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
def multi_head_attention():
    def run(net, x):
        tokens = x.flatten(2).transpose(1, 2)
        mixed, _ = net.mix(tokens, tokens, tokens)
        return mixed.transpose(1, 2).reshape(x.shape)

    return around(run, 8, mix=nn.MultiheadAttention(8, 2, batch_first=True))


# Norms and loose parameters --------------------------------------------------------------------------


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


@network
def weight_norm():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(conv(3, 8)), nn.ReLU(), conv(8, 6), head(6))


@network
def weight_standardised():
    def run(net, x):
        weight = net.body.weight
        weight = weight - weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, net.body.bias, padding=1)

    return around(run, 8, 6, body=conv(8, 6))


# Sharing ---------------------------------------------------------------------------------------------


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


# Inputs and outputs ----------------------------------------------------------------------------------


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


# Training mode, hooks, odds and ends -----------------------------------------------------------------


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
