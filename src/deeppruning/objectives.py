"""The second objectives: what a search minimises besides the error. Importing this file imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from deeppruning.errors import InputError
from deeppruning.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from deeppruning.graph import ChannelGraph
    from deeppruning.latency import LatencyPlan


class Objective(ABC):
    """A cost to minimise besides the error. Instances are sent to worker processes."""

    name: str
    label: str = ""  # of its axis in the report, by default its name
    unit: str = ""  # empty for counts
    column: str = "cost"  # the field of a candidate that holds it; FLOPs and parameters have their own

    @abstractmethod
    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The cost of one genome; `network` is the network cut by it."""

    @property
    def title(self) -> str:
        """Label and unit."""
        return ", ".join(filter(None, (self.label or self.name, self.unit)))


class Counted(Objective):
    """An objective that is computed from the genome alone."""

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """The cost of a genome as a number, or of a population (one genome per row) as an array.

        By default what the channel graph counts under the objective's name.
        """
        return getattr(graph, self.name)(genomes)

    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The count of the genome."""
        return float(self.count(graph, genome))


class Measured(Objective):
    """An objective that needs the thin network itself."""

    @abstractmethod
    def measure(self, network: nn.Module, example_input: Any, device: str) -> float:
        """The cost of the network, which must not be changed: it is trained afterwards."""

    def cost(
        self, graph: ChannelGraph, genome: Any, network: nn.Module, example_input: Any, device: str
    ) -> float:
        """The measurement of the network."""
        return float(self.measure(network, example_input, device))


class Function(Measured):
    """A user's function of the thin network; it is not registered."""

    label = "Cost (own objective)"

    def __init__(self, function: Callable[[nn.Module], float]) -> None:
        self.function = function
        self.name = f"function {getattr(function, '__qualname__', None) or type(function).__qualname__}"

    def measure(self, network: nn.Module, example_input: Any, device: str) -> float:
        """The value of the function."""
        return self.function(network)


OBJECTIVES: Registry[Objective] = Registry("objective", "deeppruning.objectives")
register_objective = OBJECTIVES.register


def as_objective(objective: Objective | str | Callable[[nn.Module], float]) -> Objective:
    """An objective from its name, from a function of the network, or as it is."""
    if isinstance(objective, Objective):
        return objective
    if isinstance(objective, str):
        return OBJECTIVES.find(objective)
    if callable(objective):
        return Function(objective)
    raise InputError(
        "objective must be a name or a function of the thin network that returns a number, "
        f"got {type(objective).__name__}"
    )


@register_objective
class Flops(Counted):
    """Multiply-adds of convolutions and linear layers for one input; the paper's objective."""

    name = column = "flops"
    label = "FLOPs"


@register_objective
class Params(Counted):
    """Parameters of the thin network."""

    name = column = "params"
    label = "Parameters"


@register_objective
class Size(Counted):
    """Bytes of the thin network's parameters and buffers in a file."""

    name = "size"
    label = "Size of the weights"
    unit = "bytes"


@register_objective
class Latency(Counted):
    """Seconds of a forward pass, predicted by the latency plan that is made before the search."""

    name = "latency"
    label = "Latency in the search"
    unit = "seconds"

    def __init__(self, plan: LatencyPlan | None = None) -> None:
        self.plan = plan

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """As the plan predicts them."""
        if self.plan is None:
            raise InputError(
                "a latency needs a plan of the network on this machine: give the objective by its name, "
                "'latency', to prune or search"
            )
        population = np.asarray(genomes)
        seconds = self.plan(graph, np.atleast_2d(population))
        return float(seconds[0]) if population.ndim == 1 else seconds
