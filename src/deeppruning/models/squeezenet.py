"""SqueezeNet 1.1 (Iandola et al., 2016) for small images: with batch norm, without the first stride."""

import torch
from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureMap, GlobalMean, check_dropout, draw_weights
from deeppruning.models.registry import register_model

STEM = 64
# Widths of squeeze and expand in each fire module, by stage; a stage begins with a pool.
STAGES = (
    ((16, 64), (16, 64)),
    ((32, 128), (32, 128)),
    ((48, 192), (48, 192), (64, 256), (64, 256)),
)


class Fire(nn.Module):
    """A narrow 1x1 convolution, then a 1x1 and a 3x3 side by side; their outputs are concatenated."""

    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = ConvNorm(inputs, squeeze, 1, activation=nn.ReLU(inplace=True))
        self.expand1x1 = ConvNorm(squeeze, expand, 1, activation=nn.ReLU(inplace=True))
        self.expand3x3 = ConvNorm(squeeze, expand, 3, activation=nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """A SqueezeNet fire module: squeezed, then expanded two ways."""
        x = self.squeeze(x)
        return torch.cat([self.expand1x1(x), self.expand3x3(x)], 1)


class SqueezeNet(nn.Module):
    """A 3x3 convolution, eight fire modules with three pools, and a 1x1 convolution to the classes."""

    def __init__(self, num_classes: int, in_channels: int, image_size: int, dropout: float) -> None:
        super().__init__()
        side = FeatureMap(image_size)
        # Without batch norm this network diverges at the learning rates of the other networks here.
        layers: list[nn.Module] = [ConvNorm(in_channels, STEM, 3, activation=nn.ReLU(inplace=True))]
        inputs = STEM
        for stage in STAGES:
            layers.append(side.halving(nn.MaxPool2d(3, 2, padding=1)))
            for squeeze, expand in stage:
                layers.append(Fire(inputs, squeeze, expand))
                inputs = 2 * expand
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Dropout(check_dropout(dropout)), nn.Conv2d(inputs, num_classes, 1), GlobalMean()
        )
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        """The class scores of a SqueezeNet."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


@register_model
def squeezenet(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> SqueezeNet:
    """version 1.1 with batch norm"""
    return SqueezeNet(num_classes, in_channels, image_size, dropout)
