"""ResNet50 in the shape that torchvision has it, so that measuring needs no torchvision."""

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    """A stem, sixteen bottlenecks, a classifier: 4.09 billion multiply-adds at 224 pixels."""

    def __init__(self, classes: int) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        ]  # fmt: skip
        inputs = 64
        for number, blocks in enumerate((3, 4, 6, 3)):
            width = 64 * 2**number
            for block in range(blocks):
                layers.append(Bottleneck(inputs, width, 2 if number and not block else 1))
                inputs = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
