"""The formats a network can be written in, and the form it is written in; each format registers itself."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.deploying.onnx_graph import require
from deeppruning.errors import InputError
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.registry import Registry


class Normalized(nn.Module):
    """A network with the normalisation of its input built in: it takes pixels of 0..255 as floats.

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


@dataclass(frozen=True, eq=False)
class Export:
    """What is written: a network, an example input, and how much its outputs may differ."""

    model: nn.Module
    example: Callable[[], Tensor]  # called by formats that run the network
    normalization: Normalization | None = None  # to be folded in
    tolerance: float = TOLERANCE
    metadata: Mapping[str, str] | None = None
    run: Path | None = None  # the folder of the run that it belongs to
    base: nn.Module | None = None  # an instance of the class that was pruned, where the user gave one

    def network(self) -> nn.Module:
        """A copy of the network on the CPU, in evaluation mode, its normalisation folded in."""
        own = copy.deepcopy(self.model)
        network = own if self.normalization is None else Normalized(own, self.normalization)
        return network.cpu().eval()


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is written, and checked before it is kept."""

    name: str  # as in --format
    suffix: str
    about: str  # for --help
    write: Callable[[Export, Path], float]  # returns the largest difference from PyTorch's outputs
    detail: str = ""  # printed next to the file that was written, instead of the name
    needs: tuple[str, ...] = ()  # optional packages
    folder: bool = False  # a folder is written, not a file
    graph: bool = True  # holds the computation, not only weights, so that a normalisation can be folded in

    def check(self, *, normalize: bool) -> None:
        """Refuse what this format cannot do, before any work."""
        for package in self.needs:
            require(package, what=self.detail.split(",")[0] or self.name)
        if normalize and not self.graph:
            raise InputError(
                f"{self.name} holds weights only, so no normalisation can be folded in; "
                "leave out --normalize or use --format onnx"
            )


FORMATS: Registry[Format] = Registry("format", "deeppruning.exporting")
