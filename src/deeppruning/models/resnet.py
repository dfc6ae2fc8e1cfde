"""The CIFAR form of ResNet (He et al., 2016): three stages of 16, 32 and 64 channels.

The layers have the names of the widely used public CIFAR checkpoints, so those can be loaded.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from deeppruning.errors import unknown
from deeppruning.models.layers import GlobalMean, draw_weights
from deeppruning.models.registry import register_model

WIDTHS = (16, 32, 64)
SHORTCUTS = ("pad", "conv")


class PadShortcut(nn.Module):
    """Option A of the paper: every `stride`-th pixel, padded with channels of zeros on both sides.

    A module without parameters, so that a pruned copy can wrap it and select channels around it.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The input with every other position left out and zero channels on both sides."""
        extra = self.out_channels - self.in_channels
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, extra // 2, extra - extra // 2))

    def extra_repr(self) -> str:
        """Channels and stride of the padded shortcut."""
        return f"{self.in_channels}, {self.out_channels}, stride={self.stride}"


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; their output is added to the input of the block."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = (
                PadShortcut(inputs, outputs, stride)
                if shortcut == "pad"
                else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            )

    def forward(self, x: Tensor) -> Tensor:
        """A ResNet block, added to its shortcut."""
        out = self.relu1(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        result: Tensor = self.relu2(out + self.shortcut(x))
        return result


class ResNet(nn.Module):
    """A 3x3 convolution, three stages of `blocks` blocks each, global average pooling, a linear layer."""

    def __init__(self, blocks: int, num_classes: int, in_channels: int, shortcut: str) -> None:
        super().__init__()
        if shortcut not in SHORTCUTS:
            raise unknown("shortcut", str(shortcut), SHORTCUTS)
        self.conv1 = nn.Conv2d(in_channels, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _resnet_stage(blocks, WIDTHS[0], WIDTHS[0], 1, shortcut)
        self.layer2 = _resnet_stage(blocks, WIDTHS[0], WIDTHS[1], 2, shortcut)
        self.layer3 = _resnet_stage(blocks, WIDTHS[1], WIDTHS[2], 2, shortcut)
        self.pool = GlobalMean()
        self.linear = nn.Linear(WIDTHS[2], num_classes)
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        """The class scores of a ResNet."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(self.pool(x))
        return logits


def _resnet_stage(blocks: int, inputs: int, outputs: int, stride: int, shortcut: str) -> nn.Sequential:
    """A stage of ResNet blocks; the first one has the stride."""
    first = BasicBlock(inputs, outputs, stride, shortcut)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1, shortcut) for _ in range(blocks - 1)))


@register_model
def resnet20(num_classes: int, in_channels: int, shortcut: str = "pad") -> ResNet:
    """CIFAR form, 3 blocks per stage"""
    return ResNet(3, num_classes, in_channels, shortcut)


@register_model
def resnet32(num_classes: int, in_channels: int, shortcut: str = "pad") -> ResNet:
    """CIFAR form, 5 blocks per stage"""
    return ResNet(5, num_classes, in_channels, shortcut)


@register_model
def resnet44(num_classes: int, in_channels: int, shortcut: str = "pad") -> ResNet:
    """CIFAR form, 7 blocks per stage"""
    return ResNet(7, num_classes, in_channels, shortcut)


@register_model
def resnet56(num_classes: int, in_channels: int, shortcut: str = "pad") -> ResNet:
    """CIFAR form, 9 blocks per stage"""
    return ResNet(9, num_classes, in_channels, shortcut)


@register_model
def resnet110(num_classes: int, in_channels: int, shortcut: str = "pad") -> ResNet:
    """CIFAR form, 18 blocks per stage"""
    return ResNet(18, num_classes, in_channels, shortcut)
