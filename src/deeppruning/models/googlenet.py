"""GoogLeNet (Szegedy et al., 2015) for small images: with batch norm, without auxiliary heads."""

import torch
from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureClassifier, FeatureMap, check_dropout
from deeppruning.models.registry import register_model

STEM = (64, 192)
# Widths of a module: 1x1; reduction and 3x3; reduction and 5x5; 1x1 after the pool. Stages end with a pool.
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


def _inception_conv(inputs: int, outputs: int, kernel: int) -> ConvNorm:
    """A convolution of an inception block, with batch norm and ReLU."""
    return ConvNorm(inputs, outputs, kernel, activation=nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches with the same input; their outputs are concatenated."""

    def __init__(self, inputs: int, widths: Widths) -> None:
        super().__init__()
        direct, (reduce_three, three), (reduce_five, five), pooled = widths
        self.branch1 = _inception_conv(inputs, direct, 1)
        self.branch2 = nn.Sequential(
            _inception_conv(inputs, reduce_three, 1), _inception_conv(reduce_three, three, 3)
        )
        self.branch3 = nn.Sequential(
            _inception_conv(inputs, reduce_five, 1), _inception_conv(reduce_five, five, 5)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), _inception_conv(inputs, pooled, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The four inception branches, concatenated."""
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class GoogLeNet(FeatureClassifier):
    """Three convolutions, nine inception modules with two pools between them, and a linear layer."""

    def __init__(self, num_classes: int, in_channels: int, image_size: int, dropout: float) -> None:
        side = FeatureMap(image_size)
        narrow, inputs = STEM
        layers: list[nn.Module] = [
            _inception_conv(in_channels, narrow, 3),
            _inception_conv(narrow, narrow, 1),
            _inception_conv(narrow, inputs, 3),
        ]
        for index, stage in enumerate(STAGES):
            if index > 0:
                layers.append(side.halving(nn.MaxPool2d(3, 2, padding=1)))
            for widths in stage:
                layers.append(Inception(inputs, widths))
                direct, (_, three), (_, five), pooled = widths
                inputs = direct + three + five + pooled
        super().__init__(layers, [nn.Dropout(check_dropout(dropout)), nn.Linear(inputs, num_classes)])


@register_model
def googlenet(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> GoogLeNet:
    """Inception v1 without auxiliary heads"""
    return GoogLeNet(num_classes, in_channels, image_size, dropout)
