"""MobileNet v2 (Sandler et al., 2018) for small images: the first two of its five strides are dropped."""

from typing import ClassVar

from torch import Tensor, nn

from deeppruning.models.layers import ConvNorm, FeatureMap, GlobalMean, check_dropout, draw_weights
from deeppruning.models.registry import register_model

# expansion, channels, blocks, whether the stage halves the map
STAGES = (
    (1, 16, 1, False),
    (6, 24, 2, False),
    (6, 32, 3, True),
    (6, 64, 4, True),
    (6, 96, 3, False),
    (6, 160, 3, True),
    (6, 320, 1, False),
)
STEM, HEAD = 32, 1280


class InvertedResidual(nn.Module):
    """Widen by a 1x1, filter each channel on its own, narrow by a 1x1; add the input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [ConvNorm(inputs, wide, 1, activation=nn.ReLU6(inplace=True))] if expansion > 1 else []
        self.conv = nn.Sequential(
            *widen,
            ConvNorm(wide, wide, 3, stride=stride, groups=wide, activation=nn.ReLU6(inplace=True)),
            ConvNorm(wide, outputs, 1),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return x + out if self.residual else out


class MobileNetV2(nn.Module):
    """A 3x3 convolution, seventeen inverted residuals, a 1x1, the mean of the map, a linear layer."""

    paper_excludes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, num_classes: int, in_channels: int, image_size: int, dropout: float) -> None:
        super().__init__()
        side = FeatureMap(image_size)
        layers: list[nn.Module] = [ConvNorm(in_channels, STEM, 3, activation=nn.ReLU6(inplace=True))]
        inputs = STEM
        for expansion, outputs, blocks, halves in STAGES:
            for index in range(blocks):
                stride = side.stride() if halves and index == 0 else 1
                layers.append(InvertedResidual(inputs, outputs, expansion, stride))
                inputs = outputs
        layers.append(ConvNorm(inputs, HEAD, 1, activation=nn.ReLU6(inplace=True)))
        self.features = nn.Sequential(*layers)
        self.pool = GlobalMean()
        self.classifier = nn.Sequential(nn.Dropout(check_dropout(dropout)), nn.Linear(HEAD, num_classes))
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.pool(self.features(x)))
        return logits


@register_model
def mobilenet_v2(num_classes: int, in_channels: int, image_size: int, dropout: float = 0.0) -> MobileNetV2:
    """inverted residuals"""
    return MobileNetV2(num_classes, in_channels, image_size, dropout)
