"""MobileNet v2 and ResNet50 for ImageNet with torchvision's parameter names, and photographs for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SIZE, CLASSES = 224, 1000
STD = (0.229, 0.224, 0.225)
BATCH = 32  # photographs in one forward pass: of fewer than 16, torch runs 1x1 convolutions by a slower way
STAGES = (  # of MobileNet v2: expansion, channels, blocks, stride of the first
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without offset, of the same extents for stride 1, and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Widen, filter each channel by itself, narrow; added to the input where shapes allow it."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [nn.Sequential(*conv_norm(inputs, wide, 1), nn.ReLU6(inplace=True))] if expansion > 1 else []
        apart = nn.Sequential(*conv_norm(wide, wide, 3, stride, groups=wide), nn.ReLU6(inplace=True))
        self.conv = nn.Sequential(*widen, apart, *conv_norm(wide, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """Seventeen inverted residuals: 0.30 billion multiply-adds at 224 pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*conv_norm(3, 32, 3, 2), nn.ReLU6(inplace=True))]
        inputs = 32
        for expansion, outputs, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(InvertedResidual(inputs, outputs, expansion, 1 if block else stride))
                inputs = outputs
        self.features = nn.Sequential(
            *layers, nn.Sequential(*conv_norm(inputs, 1280, 1), nn.ReLU6(inplace=True))
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and a shortcut; in version 1 the first 1x1 has the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = conv_norm(inputs, width, 1, stride)
        self.conv2, self.bn2 = conv_norm(width, width, 3)
        self.conv3, self.bn3 = conv_norm(width, outputs, 1)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(*conv_norm(inputs, outputs, 1, stride)) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        joined: Tensor = self.relu(self.bn3(self.conv3(out)) + kept)
        return joined


class ResNet50(nn.Module):
    """Sixteen bottlenecks, version 1: 3.86 billion multiply-adds at 224 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv_norm(3, 64, 7, 2)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inputs = 64
        for number, blocks in enumerate((3, 4, 6, 3)):
            width, stage = 64 * 2**number, []
            for block in range(blocks):
                stage.append(Bottleneck(inputs, width, 2 if number and not block else 1))
                inputs = 4 * width
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1e-3

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


@dataclass(frozen=True)
class Network:
    """How a network is made, and what is taken from its photographs' colours."""

    title: str
    make: type[nn.Module]
    mean: tuple[float, float, float]


NETWORKS = {
    "mobilenet_v2": Network("MobileNet v2", MobileNetV2, (0.485, 0.456, 0.406)),
    "resnet50": Network("ResNet50", ResNet50, (123.68 / 255, 116.779 / 255, 103.939 / 255)),
}


def load_network(name: str, folder: Path) -> nn.Module:
    """The network with the weights of the folder, in evaluation mode."""
    network = NETWORKS[name].make()
    network.load_state_dict(torch.load(folder / f"{name}.pth", map_location="cpu", weights_only=True))
    return network.eval()


@dataclass(frozen=True, eq=False)
class Photographs:
    """Pixels (n, 3, 224, 224) as bytes, and the class of each."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    @classmethod
    def read(cls, folder: Path) -> Photographs:
        """Those of a folder of class folders; decoded once, then read from a file beside it."""
        kept = folder.with_suffix(".npz")
        if not kept.exists():
            from PIL import Image

            files = sorted(folder.glob("*/*.*"))
            names = sorted({file.parent.name for file in files})
            pixels = [np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1) for file in files]
            labels = [names.index(file.parent.name) for file in files]
            part = folder.with_suffix(".part.npz")
            np.savez(part, pixels=np.stack(pixels), labels=np.array(labels))
            part.replace(kept)
        with np.load(kept) as arrays:
            return cls(arrays["pixels"], arrays["labels"])

    def spread(self, count: int) -> Photographs:
        """So many of them, evenly spread over the classes."""
        chosen = np.linspace(0, len(self.pixels) - 1, min(count, len(self.pixels))).round().astype(int)
        return Photographs(self.pixels[chosen], self.labels[chosen])

    def tensor(self, name: str, rows: slice = slice(None)) -> Tensor:
        """As the network takes them."""
        mean, std = (torch.tensor(values).reshape(3, 1, 1) for values in (NETWORKS[name].mean, STD))
        return (torch.from_numpy(self.pixels[rows]).float() / 255 - mean) / std

    def batches(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and classes, some at a time."""
        for start in range(0, len(self.pixels), BATCH):
            rows = slice(start, start + BATCH)
            yield self.tensor(name, rows), torch.from_numpy(self.labels[rows])
