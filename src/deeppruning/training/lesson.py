"""What a network is trained on: the batches of an epoch, and the loss on each."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Taught(NamedTuple):
    """The loss on one batch, the number of inputs in it, and how many of them got a wrong answer."""

    loss: Tensor
    inputs: int
    wrong: Tensor


class Epoch(Protocol):
    """The batches of one epoch."""

    def __len__(self) -> int:
        """Their number."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """One after the other."""
        ...


class Lesson(ABC):
    """Batches that follow from the number of the epoch, and what the network is to learn from them."""

    @abstractmethod
    def batches(self, epoch: int) -> Epoch:
        """The batches of an epoch, always the same for the same number."""

    @abstractmethod
    def taught(self, model: nn.Module, batch: Any) -> Taught:
        """Run the network on a batch."""

    @property
    def teacher(self) -> nn.Module | None:
        """A network whose outputs are imitated; it is kept in evaluation mode."""
        return None

    @property
    def readers(self) -> int:
        """The number of processes that read batches ahead."""
        return 0

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What of it decides the result, as JSON types: a checkpoint belongs to one lesson."""
