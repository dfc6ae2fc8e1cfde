"""VGG (Simonyan and Zisserman, 2015) with batch norm and a classifier with two hidden layers of 512."""

from collections.abc import Sequence

from torch import nn

from deeppruning.models.layers import FeatureClassifier, FeatureMap, check_dropout
from deeppruning.models.registry import register_model

WIDTHS = (64, 128, 256, 512, 512)


class VGG(FeatureClassifier):
    """Five stages of 3x3 convolutions, each followed by a pool as long as the map can be halved."""

    def __init__(
        self, depths: Sequence[int], num_classes: int, in_channels: int, image_size: int, dropout: float
    ) -> None:
        side = FeatureMap(image_size)
        layers: list[nn.Module] = []
        channels = in_channels
        for depth, width in zip(depths, WIDTHS, strict=True):
            for _ in range(depth):
                conv = nn.Conv2d(channels, width, 3, padding=1, bias=False)
                layers += [conv, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
            # Rounding up keeps the last row and column of an odd map, and agrees with FeatureMap.
            layers.append(side.halving(nn.MaxPool2d(2, ceil_mode=True)))
        classifier = [
            nn.Dropout(check_dropout(dropout)),
            nn.Linear(channels, 512),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(512, 512),
            nn.ReLU(inplace=True),
            nn.Linear(512, num_classes),
        ]
        super().__init__(layers, classifier)


@register_model
def vgg16(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> VGG:
    """batch norm, head 512-512-classes"""
    return VGG((2, 2, 3, 3, 3), num_classes, in_channels, image_size, dropout)


@register_model
def vgg19(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> VGG:
    """batch norm, head 512-512-classes"""
    return VGG((2, 2, 4, 4, 4), num_classes, in_channels, image_size, dropout)
