"""VGG with batch norm and a classifier of two hidden layers of 512 (Simonyan and Zisserman, 2015)."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from deeppruning.models.layers import FeatureMap, GlobalMean, check_dropout, draw_weights
from deeppruning.models.registry import register_model

WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each closed by a pool that halves the map while it can be."""

    paper_excludes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, depths: Sequence[int], num_classes: int, in_channels: int, image_size: int, dropout: float
    ) -> None:
        super().__init__()
        side = FeatureMap(image_size)
        layers: list[nn.Module] = []
        channels = in_channels
        for depth, width in zip(depths, WIDTHS, strict=True):
            for _ in range(depth):
                conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
                layers += [conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
            # Rounding up keeps the last pixel row of an odd map, and agrees with FeatureMap.
            layers.append(side.halving(nn.MaxPool2d(2, ceil_mode=True)))
        self.features = nn.Sequential(*layers)
        self.pool = GlobalMean()
        self.classifier = nn.Sequential(
            nn.Dropout(check_dropout(dropout)),
            nn.Linear(channels, 512),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, num_classes),
        )
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)))
        return logits


@register_model
def vgg16(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> VGG:
    """batch norm, head 512-512-classes"""
    return VGG((2, 2, 3, 3, 3), num_classes, in_channels, image_size, dropout)


@register_model
def vgg19(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> VGG:
    """batch norm, head 512-512-classes"""
    return VGG((2, 2, 4, 4, 4), num_classes, in_channels, image_size, dropout)
