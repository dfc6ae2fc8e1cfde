"""DenseNet-BC for small images (Huang et al., 2017), growth rate 12.

The layers have the names of the public CIFAR checkpoints of this network, so those can be loaded.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from deeppruning.models.layers import GlobalMean, draw_weights
from deeppruning.models.registry import register_model

GROWTH = 12
BOTTLENECK = 4 * GROWTH


class DenseLayer(nn.Module):
    """A 1x1 bottleneck and a 3x3 convolution; its output is concatenated to its input."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, BOTTLENECK, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(BOTTLENECK)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(BOTTLENECK, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The input with the new channels of a DenseNet layer behind it."""
        out = self.conv1(self.relu1(self.bn1(x)))
        out = self.conv2(self.relu2(self.bn2(out)))
        return torch.cat([x, out], 1)


class DenseBlock(nn.Module):
    """Layers that each read the outputs of all layers before them in the block."""

    def __init__(self, depth: int, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Sequential(*(DenseLayer(inputs + index * GROWTH) for index in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """The input of a DenseNet block with the channels of all its layers."""
        out: Tensor = self.layer(x)
        return out


class Transition(nn.Module):
    """Halves the channels with a 1x1 convolution, and height and width with an average pool."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Fewer channels and half the size, between two DenseNet blocks."""
        out: Tensor = self.pool(self.conv1(self.relu(self.bn1(x))))
        return out


class DenseNet(nn.Module):
    """A 3x3 convolution, three dense blocks of `depth` layers, transitions between them, a linear layer."""

    # The paper prunes only the 1x1 bottlenecks and the 3x3 layers of the blocks.
    paper_excludes: ClassVar[tuple[str, ...]] = ("conv1", "trans*.conv1")

    def __init__(self, depth: int, num_classes: int, in_channels: int) -> None:
        super().__init__()
        width = 2 * GROWTH
        self.conv1 = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.block1 = DenseBlock(depth, width)
        width += depth * GROWTH
        self.trans1 = Transition(width, width // 2)
        width = width // 2
        self.block2 = DenseBlock(depth, width)
        width += depth * GROWTH
        self.trans2 = Transition(width, width // 2)
        width = width // 2
        self.block3 = DenseBlock(depth, width)
        width += depth * GROWTH
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.pool = GlobalMean()
        self.fc = nn.Linear(width, num_classes)
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        """The class scores of a DenseNet."""
        x = self.trans1(self.block1(self.conv1(x)))
        x = self.trans2(self.block2(x))
        x = self.relu(self.bn1(self.block3(x)))
        logits: Tensor = self.fc(self.pool(x))
        return logits


@register_model
def densenet50(num_classes: int, in_channels: int) -> DenseNet:
    """DenseNet-BC, blocks of 7-7-7"""
    return DenseNet(7, num_classes, in_channels)


@register_model
def densenet100(num_classes: int, in_channels: int) -> DenseNet:
    """DenseNet-BC, blocks of 16-16-16"""
    return DenseNet(16, num_classes, in_channels)
