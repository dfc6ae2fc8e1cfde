"""A network with the normalisation of its input built in, so that raw pixels go in."""

import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization


class Normalized(nn.Module):
    """Takes pixels of 0..255 as floats, scales them to 0..1, normalises them and runs the network.

    >>> inner = Normalized(nn.Identity(), Normalization((0.5,), (0.25,)))
    >>> inner(torch.tensor([0.0, 255.0]).view(1, 1, 1, 2)).flatten().tolist()
    [-2.0, 2.0]
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, normalization: Normalization) -> None:
        super().__init__()
        self.network = network
        mean = torch.tensor(normalization.mean, dtype=torch.float64).view(1, -1, 1, 1)
        std = torch.tensor(normalization.std, dtype=torch.float64).view(1, -1, 1, 1)
        # One multiplication and one addition: x / 255 / std - mean / std.
        self.register_buffer("scale", (1 / (255 * std)).float())
        self.register_buffer("shift", (-mean / std).float())

    def forward(self, pixels: Tensor) -> Tensor:
        """The network's output for raw pixels."""
        out: Tensor = self.network(pixels * self.scale + self.shift)
        return out
