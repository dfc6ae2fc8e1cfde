"""What the networks of the zoo share: small building blocks and how fresh weights are drawn."""

from torch import Tensor, nn

from deeppruning.errors import InputError


class FeatureMap:
    """The side of the feature map while a network is built; a step that would make it vanish is left out.

    >>> side = FeatureMap(3)
    >>> side.stride(), side.stride(), side.stride()
    (2, 2, 1)
    """

    def __init__(self, side: int) -> None:
        self.side = side

    def stride(self) -> int:
        """2 while the map can still be halved (odd sides rounded up), 1 from then on."""
        if self.side < 2:
            return 1
        self.side = (self.side + 1) // 2
        return 2

    def halving(self, pool: nn.Module) -> nn.Module:
        """The pool while the map can still be halved, then nothing, so that later layers keep their names."""
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
    """The mean of each channel's map: (N, C, H, W) to (N, C), for any H and W."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def check_dropout(dropout: float) -> float:
    """The share of features dropped in training, refused outside 0..1."""
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise InputError(f"dropout must lie in [0, 1), got {dropout!r}")
    return float(dropout)


def draw_weights(model: nn.Module) -> None:
    """Draw every weight afresh, in place; batch norm starts as the identity.

    Convolutions follow He's normal distribution by fan-in, which alone is right for depthwise ones too.
    Linear layers, and convolutions with a bias, have no batch norm behind them to tame their output:
    they get torch's own smaller draw, so that the first loss is that of guessing (He's puts VGG16 above).
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.bias is None:
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, (nn.Conv2d, nn.Linear, nn.BatchNorm2d)):
            module.reset_parameters()
