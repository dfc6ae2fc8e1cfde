"""What an objective is: counted from genomes alone, exactly, or measured on the thin network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from deeppruning.errors import InputError
from deeppruning.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from deeppruning.graph import ChannelGraph


class Objective(ABC):
    """A cost to minimise beside the error. Instances travel to worker processes."""

    name: str
    label: str = ""  # of its axis in the report, by default its name
    unit: str = ""  # empty for what is counted
    column: str = "cost"  # under which a candidate keeps it; flops and params have their own
    exact: bool  # whether it follows from genomes alone, for a whole population at once

    @abstractmethod
    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The cost of one genome, of which `network` was cut."""

    @property
    def title(self) -> str:
        """Label and unit."""
        return ", ".join(filter(None, (self.label or self.name, self.unit)))


class Counted(Objective):
    """An objective that follows from the genome alone."""

    exact = True

    @abstractmethod
    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """The cost of a genome as a number, those of a population (a row each) as an array."""

    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The count of the one genome."""
        return float(self.count(graph, genome))


class Measured(Objective):
    """An objective that needs the thin network itself."""

    exact = False

    @abstractmethod
    def measure(self, network: nn.Module, example_input: Any, device: str) -> float:
        """The cost of the network, which must be left as it is: it is trained afterwards."""

    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The measure of the one network."""
        return float(self.measure(network, example_input, device))


class Function(Measured):
    """A function of the thin network, the user's own; it is in no registry."""

    label = "Cost (own objective)"

    def __init__(self, function: Callable[[nn.Module], float]) -> None:
        self.function = function
        self.name = f"function {getattr(function, '__qualname__', None) or type(function).__qualname__}"

    def measure(self, network: nn.Module, example_input: Any, device: str) -> float:
        """What the function says."""
        return self.function(network)


OBJECTIVES: Registry[Objective] = Registry("objective", "deeppruning.objectives")


def as_objective(given: Objective | str | Callable[[nn.Module], float]) -> Objective:
    """The objective of a name, a function as an objective, or the objective that was given."""
    if isinstance(given, Objective):
        return given
    if isinstance(given, str):
        return OBJECTIVES.find(given)
    if callable(given):
        return Function(given)
    raise InputError(
        "objective must be a name or a function of the thin network that returns a number, "
        f"got {type(given).__name__}"
    )


Class = TypeVar("Class", bound=type[Objective])


def register_objective(objective: Class) -> Class:
    """Enter an objective under its name."""
    OBJECTIVES.add(objective())
    return objective
