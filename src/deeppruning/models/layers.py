"""Building blocks and weight initialisation shared by the networks of the zoo."""

from collections.abc import Sequence

from torch import Tensor, nn

from deeppruning.errors import InputError


class FeatureMap:
    """The side of the feature map while a network is built; strides are left out once it is 1.

    >>> side = FeatureMap(3)
    >>> side.stride(), side.stride(), side.stride()
    (2, 2, 1)
    """

    def __init__(self, side: int) -> None:
        self.side = side

    def stride(self) -> int:
        """2 as long as the map can be halved (odd sides are rounded up), then 1."""
        if self.side < 2:
            return 1
        self.side = (self.side + 1) // 2
        return 2

    def halving(self, pool: nn.Module) -> nn.Module:
        """The pool as long as the map can be halved, then an identity: later layers keep their names."""
        return pool if self.stride() == 2 else nn.Identity()


class ConvNorm(nn.Sequential):
    """A convolution that keeps the map's side (divided by the stride), batch norm, and an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
        )
        if activation is not None:
            self.append(activation)


class GlobalMean(nn.Module):
    """Global average pooling: (N, C, H, W) to (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """The mean of each channel's map."""
        return x.mean((2, 3))


class FeatureClassifier(nn.Module):
    """Feature layers, the mean over each map, and a classifier; its weights are initialised."""

    def __init__(self, features: Sequence[nn.Module], classifier: Sequence[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.pool = GlobalMean()
        self.classifier = nn.Sequential(*classifier)
        draw_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores: features, pooling, classifier."""
        logits: Tensor = self.classifier(self.pool(self.features(x)))
        return logits


def check_dropout(dropout: float) -> float:
    """The dropout probability; raises InputError outside [0, 1)."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise InputError(f"dropout must lie in [0, 1), got {dropout!r}")
    return float(dropout)


def draw_weights(model: nn.Module) -> None:
    """Initialise all weights in place; batch norm starts as the identity.

    Convolutions use He's normal initialisation by fan-in, which is right for depthwise ones too. Linear
    layers and convolutions with a bias are not followed by batch norm: they use torch's default, which is
    smaller, so that the first loss is that of guessing.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.bias is None:
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
            module.reset_parameters()
