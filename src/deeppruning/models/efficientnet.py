"""EfficientNet-B0 (Tan and Le, 2019) for small images: the first two of its five strides are dropped."""

from typing import ClassVar

from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureMap, GlobalMean, check_dropout, draw_weights
from deeppruning.models.registry import register_model

# expansion, channels, blocks, kernel, whether the stage halves the map
STAGES = (
    (1, 16, 1, 3, False),
    (6, 24, 2, 3, False),
    (6, 40, 2, 5, True),
    (6, 80, 3, 3, True),
    (6, 112, 3, 5, False),
    (6, 192, 4, 5, True),
    (6, 320, 1, 3, False),
)
STEM, HEAD = 32, 1280


class SqueezeExcite(nn.Module):
    """Scales each channel by a number between 0 and 1 computed from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.SiLU(inplace=True)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.gate(self.expand(self.activation(self.reduce(self.pool(x)))))
        return x * scale


class MBConv(nn.Module):
    """An inverted residual with squeeze-and-excitation behind the depthwise convolution."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [ConvNorm(inputs, wide, 1, activation=nn.SiLU(inplace=True))] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            ConvNorm(wide, wide, kernel, stride=stride, groups=wide, activation=nn.SiLU(inplace=True)),
            SqueezeExcite(wide, max(1, inputs // 4)),
            ConvNorm(wide, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class EfficientNet(nn.Module):
    """A 3x3 convolution, sixteen MBConv blocks, a 1x1 convolution, the mean of the map, a linear layer."""

    paper_excludes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_classes: int, in_channels: int, image_size: int, dropout: float) -> None:
        super().__init__()
        side = FeatureMap(image_size)
        layers: list[nn.Module] = [ConvNorm(in_channels, STEM, 3, activation=nn.SiLU(inplace=True))]
        inputs = STEM
        for expansion, outputs, blocks, kernel, halves in STAGES:
            for index in range(blocks):
                stride = side.stride() if halves and index == 0 else 1
                layers.append(MBConv(inputs, outputs, expansion, kernel, stride))
                inputs = outputs
        layers.append(ConvNorm(inputs, HEAD, 1, activation=nn.SiLU(inplace=True)))
        self.features = nn.Sequential(*layers)
        self.pool = GlobalMean()
        self.classifier = nn.Sequential(nn.Dropout(check_dropout(dropout)), nn.Linear(HEAD, num_classes))
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)))
        return logits


@register_model
def efficientnet_b0(
    num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0
) -> EfficientNet:
    """squeeze-and-excitation blocks"""
    return EfficientNet(num_classes, in_channels, image_size, dropout)
