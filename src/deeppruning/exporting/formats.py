"""The formats a network can be written in: each enters itself in the file that writes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from deeppruning.data.images import Normalization
from deeppruning.deploying.onnx_graph import require
from deeppruning.errors import InputError
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.registry import Registry


@dataclass(frozen=True, eq=False)
class Export:
    """What is to be written: a network, an input of it, and how much its outputs may differ."""

    model: nn.Module
    example: Callable[[], Tensor]  # asked for by formats that run the network
    normalization: Normalization | None = None  # to be folded in
    tolerance: float = TOLERANCE
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Format:
    """A kind of file: how it is written, and checked before it is kept."""

    name: str  # as in --format
    suffix: str
    about: str  # for --help
    write: Callable[[Export, Path], float]  # gives the largest difference from PyTorch's outputs
    detail: str = ""  # told beside the file that was written; the name where there is none
    needs: tuple[str, ...] = ()  # packages that do not come with this one
    graph: bool = True  # holds the computation and not only weights, so that a normalisation can be folded in

    def check(self, *, normalize: bool) -> None:
        """Refuse what this format cannot do, before any work."""
        for package in self.needs:
            require(package, what=self.detail.split(",")[0] or self.name)
        if normalize and not self.graph:
            raise InputError(
                f"{self.name} holds weights only, so nothing can be folded in; "
                "leave out --normalize or use --format onnx"
            )


FORMATS: Registry[Format] = Registry("format", "deeppruning.exporting")
