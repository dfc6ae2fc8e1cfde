"""Every way to divide or reorder channels that we know of, at any width."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graph_networks import Net, conv

SPLITS: dict[str, Callable[[int], nn.Module]] = {}


def division(build: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    """Register a builder that takes the width of the tensor that is divided."""
    SPLITS[build.__name__] = build
    return build


def between(run: Callable[..., Tensor], width: int, out: int | None = None, **parts: nn.Module) -> Net:
    """A convolution of `width` filters, the function, a pooled linear head."""

    def forward(net, x):
        return net.out(run(net, net.stem(x)).mean((2, 3)))

    return Net(forward, stem=conv(3, width), out=nn.Linear(out or width, 3), **parts)


def unlike(pieces) -> Tensor:
    """Something else for each piece, so that a wrong border shows in the values alone."""
    acts = (torch.relu, torch.tanh, torch.sigmoid, F.silu)
    return torch.cat([acts[i % 4](piece) for i, piece in enumerate(pieces)], 1)


@division
def chunk_two(width):
    return between(lambda net, x: unlike(x.chunk(2, 1)), width)


@division
def chunk_three(width):
    return between(lambda net, x: unlike(x.chunk(3, 1)), width)


@division
def chunk_into_convolutions(width):
    left = (width + 1) // 2

    def run(net, x):
        one, two = x.chunk(2, 1)
        return torch.cat([net.one(one), net.two(two)], 1)

    return between(run, width, one=conv(left, left), two=conv(width - left, width - left))


@division
def sliced_in_half(width):
    half = width // 2

    def run(net, x):
        half = x.shape[1] // 2
        return torch.cat([net.one(x[:, :half]), x[:, half:]], 1)

    return between(run, width, one=conv(half, half))


@division
def only_the_first_half(width):
    return between(lambda net, x: x[:, : x.shape[1] // 2], width, width // 2)


@division
def only_the_middle(width):
    def run(net, x):
        quarter = x.shape[1] // 4
        return x[:, quarter : x.shape[1] - quarter]

    return between(run, width, width - 2 * (width // 4))


@division
def split_quarters(width):
    return between(lambda net, x: unlike(torch.split(x, max(1, x.shape[1] // 4), 1)), width)


@division
def split_one_to_three(width):
    def run(net, x):
        quarter = x.shape[1] // 4
        return unlike(x.split([quarter, x.shape[1] - quarter], 1))

    return between(run, width)


@division
def split_literal(width):
    return between(lambda net, x: unlike(x.split([width // 2, width - width // 2], 1)), width)


@division
def last_third_literal(width):
    third = max(1, width // 3)
    return between(lambda net, x: unlike([x[:, :-third], x[:, -third:]]), width)


@division
def one_picked(width):
    return between(lambda net, x: x + net.spread(x[:, 1:2]), width, spread=conv(1, width, 1))


@division
def one_selected(width):
    return between(lambda net, x: x + net.spread(x[:, 1].unsqueeze(1)), width, spread=conv(1, width, 1))


@division
def every_second(width):
    return between(lambda net, x: unlike([x[:, ::2], x[:, 1::2]]), width)


@division
def rolled_by_half(width):
    return between(lambda net, x: x.roll(x.shape[1] // 2, 1), width)


@division
def rolled_by_one(width):
    return between(lambda net, x: x.roll(1, 1), width)


@division
def flipped(width):
    return between(lambda net, x: x.flip(1), width)


@division
def permuted_by_buffer(width):
    net = between(lambda net, x: x[:, net.order], width)
    net.register_buffer("order", torch.randperm(width, generator=torch.Generator().manual_seed(width)))
    return net


@division
def shuffle_block(width):
    half = max(1, width // 2)

    def run(net, x):
        left, right = x.chunk(2, 1)
        x = torch.cat([left, net.body(right)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    return between(run, 2 * half, body=conv(half, half))


@division
def reversible_block(width):
    half = max(1, width // 2)

    def run(net, x):
        a, b = x.chunk(2, 1)
        a = a + net.f(b)
        return torch.cat([a, b + net.g(a)], 1)

    return between(run, 2 * half, f=conv(half, half), g=conv(half, half))


@division
def rows_of_a_view(width):
    half = max(1, width // 2)

    def run(net, x):
        n, c, h, w = x.shape
        rows = x.view(n, 2, c // 2, h, w)
        return torch.relu(rows[:, 0]) * torch.sigmoid(rows[:, 1])

    return between(run, 2 * half, half)


@division
def padded_to_the_middle(width):
    extra = width // 2

    def run(net, x):
        other = net.wide(x)
        missing = other.shape[1] - x.shape[1]
        return other + F.pad(x, (0, 0, 0, 0, missing // 2, missing - missing // 2))

    return between(run, width, width + extra, wide=conv(width, width + extra))


@division
def padded_by_literal(width):
    return between(
        lambda net, x: net.wide(x) + F.pad(x, (0, 0, 0, 0, 1, 1)),
        width,
        width + 2,
        wide=conv(width, width + 2),
    )


def _by_attributes(sizes: Callable[[Net], list[int]]) -> Callable[[int], nn.Module]:
    def build(width: int) -> nn.Module:
        left = max(1, width // 3)

        def run(net, x):
            x = torch.cat([net.left(x), net.right(x)], 1)
            one, two = x.split(sizes(net), 1)
            return torch.cat([net.one(one), net.two(two)], 1)

        parts = {"left": conv(width, left), "right": conv(width, width - left)}
        return between(run, width, **parts, one=conv(left, left), two=conv(width - left, width - left))

    return build


# These follow every cut of themselves and must stay free.
FOLLOWING = {
    "sizes_of_readers": _by_attributes(lambda net: [net.one.in_channels, net.two.in_channels]),
    "sizes_of_makers": _by_attributes(lambda net: [net.left.out_channels, net.right.out_channels]),
    "size_and_rest": _by_attributes(lambda net: [net.left.out_channels, net.two.weight.shape[1]]),
}
SPLITS |= FOLLOWING
