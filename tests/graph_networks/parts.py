"""The register of small networks, and the parts they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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
