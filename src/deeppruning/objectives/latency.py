"""The time of a forward pass as an objective, planned from a table of layers on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from deeppruning.errors import InputError
from deeppruning.objectives.base import Counted, register_objective

if TYPE_CHECKING:
    from deeppruning.graph import ChannelGraph
    from deeppruning.latency import LatencyPlan


@register_objective
class Latency(Counted):
    """Seconds of a forward pass as the plan of a network and a machine has them; made before the search."""

    name = "latency"
    label = "Latency in the search"
    unit = "seconds"

    def __init__(self, plan: LatencyPlan | None = None) -> None:
        self.plan = plan

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """What the plan says."""
        if self.plan is None:
            raise InputError(
                "a latency needs a plan of the network on this machine: give the objective by its name, "
                "'latency', to prune or search"
            )
        population = np.asarray(genomes)
        seconds = self.plan(graph, np.atleast_2d(population))
        return float(seconds[0]) if population.ndim == 1 else seconds
