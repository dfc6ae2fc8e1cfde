"""GoogLeNet (Szegedy et al., 2015) for small images: batch norm, a stride-1 start, no auxiliary heads."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureMap, GlobalMean, check_dropout, draw_weights
from deeppruning.models.registry import register_model

STEM = (64, 192)
# A module's widths: 1x1; reduction and 3x3; reduction and 5x5; 1x1 behind the pool. A stage ends in a pool.
Widths = tuple[int, tuple[int, int], tuple[int, int], int]
STAGES: tuple[tuple[Widths, ...], ...] = (
    ((64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64)),
    (
        (192, (96, 208), (16, 48), 64),
        (160, (112, 224), (24, 64), 64),
        (128, (128, 256), (24, 64), 64),
        (112, (144, 288), (32, 64), 64),
        (256, (160, 320), (32, 128), 128),
    ),
    ((256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128)),
)


def _conv(inputs: int, outputs: int, kernel: int) -> ConvNorm:
    return ConvNorm(inputs, outputs, kernel, activation=nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches that read the same maps and whose outputs are set side by side."""

    def __init__(self, inputs: int, widths: Widths) -> None:
        super().__init__()
        one, (reduce_three, three), (reduce_five, five), pooled = widths
        self.branch1 = _conv(inputs, one, 1)
        self.branch2 = nn.Sequential(_conv(inputs, reduce_three, 1), _conv(reduce_three, three, 3))
        self.branch3 = nn.Sequential(_conv(inputs, reduce_five, 1), _conv(reduce_five, five, 5))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), _conv(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class GoogLeNet(nn.Module):
    """Three convolutions, nine inception modules with two pools, the mean of the map, a linear layer."""

    paper_excludes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_classes: int, in_channels: int, image_size: int, dropout: float) -> None:
        super().__init__()
        side = FeatureMap(image_size)
        narrow, inputs = STEM
        layers: list[nn.Module] = [
            _conv(in_channels, narrow, 3),
            _conv(narrow, narrow, 1),
            _conv(narrow, inputs, 3),
        ]
        for index, stage in enumerate(STAGES):
            if index > 0:
                layers.append(side.halving(nn.MaxPool2d(3, 2, padding=1)))
            for widths in stage:
                layers.append(Inception(inputs, widths))
                one, (_, three), (_, five), pooled = widths
                inputs = one + three + five + pooled
        self.features = nn.Sequential(*layers)
        self.pool = GlobalMean()
        self.classifier = nn.Sequential(nn.Dropout(check_dropout(dropout)), nn.Linear(inputs, num_classes))
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)))
        return logits


@register_model
def googlenet(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> GoogLeNet:
    """Inception v1, no extra heads"""
    return GoogLeNet(num_classes, in_channels, image_size, dropout)
