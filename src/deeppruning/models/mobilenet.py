"""MobileNet v2 (Sandler et al., 2018) and EfficientNet-B0 (Tan and Le, 2019), for small images.

Both are stacks of inverted residuals. The first two of their five strides are left out.
"""

from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureClassifier, FeatureMap, check_dropout
from deeppruning.models.registry import register_model

# Expansion, channels, blocks, kernel, and whether the stage halves the map.
StageSizes = tuple[int, int, int, int, bool]
MOBILENET_V2: tuple[StageSizes, ...] = (
    (1, 16, 1, 3, False),
    (6, 24, 2, 3, False),
    (6, 32, 3, 3, True),
    (6, 64, 4, 3, True),
    (6, 96, 3, 3, False),
    (6, 160, 3, 3, True),
    (6, 320, 1, 3, False),
)
EFFICIENTNET_B0: tuple[StageSizes, ...] = (
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
    """Multiplies each channel by a factor between 0 and 1, computed from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.SiLU(inplace=True)
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Each channel scaled by its squeeze-and-excite gate."""
        scale: Tensor = self.gate(self.expand(self.activation(self.reduce(self.pool(x)))))
        return x * scale


class InvertedResidual(nn.Module):
    """A 1x1 convolution that widens, a depthwise one, and a 1x1 that narrows again.

    With `squeeze` there is a squeeze-and-excitation after the depthwise convolution. The input is added to
    the output if they have the same shape.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        expansion: int,
        kernel: int,
        stride: int,
        activation: type[nn.ReLU6 | nn.SiLU],
        squeeze: bool,
    ) -> None:
        super().__init__()
        wide = inputs * expansion
        layers: list[nn.Module] = []
        if expansion > 1:
            layers.append(ConvNorm(inputs, wide, 1, activation=activation(inplace=True)))
        layers.append(
            ConvNorm(wide, wide, kernel, stride=stride, groups=wide, activation=activation(inplace=True))
        )
        if squeeze:
            layers.append(SqueezeExcite(wide, max(1, inputs // 4)))
        self.conv = nn.Sequential(*layers, ConvNorm(wide, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """A MobileNet block, added to its input where the shapes allow it."""
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNet(FeatureClassifier):
    """A 3x3 convolution, stages of inverted residuals, a 1x1 convolution, and a linear layer."""

    def __init__(
        self,
        stages: tuple[StageSizes, ...],
        num_classes: int,
        in_channels: int,
        image_size: int,
        dropout: float,
        *,
        activation: type[nn.ReLU6 | nn.SiLU],
        squeeze: bool,
    ) -> None:
        side = FeatureMap(image_size)
        layers: list[nn.Module] = [ConvNorm(in_channels, STEM, 3, activation=activation(inplace=True))]
        inputs = STEM
        for expansion, outputs, blocks, kernel, halves in stages:
            for index in range(blocks):
                stride = side.stride() if halves and index == 0 else 1
                layers.append(
                    InvertedResidual(inputs, outputs, expansion, kernel, stride, activation, squeeze)
                )
                inputs = outputs
        layers.append(ConvNorm(inputs, HEAD, 1, activation=activation(inplace=True)))
        super().__init__(layers, [nn.Dropout(check_dropout(dropout)), nn.Linear(HEAD, num_classes)])


@register_model
def mobilenet_v2(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> MobileNet:
    """inverted residuals"""
    return MobileNet(
        MOBILENET_V2, num_classes, in_channels, image_size, dropout, activation=nn.ReLU6, squeeze=False
    )


@register_model
def efficientnet_b0(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> MobileNet:
    """inverted residuals with squeeze-and-excitation"""
    return MobileNet(
        EFFICIENTNET_B0, num_classes, in_channels, image_size, dropout, activation=nn.SiLU, squeeze=True
    )
