"""The number of parameters as an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeppruning.objectives.base import Counted, register_objective

if TYPE_CHECKING:
    from deeppruning.graph import ChannelGraph


@register_objective
class Params(Counted):
    """Parameters of the thin network."""

    name = "params"
    label = "Parameters"
    column = "params"

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """As the channel graph counts them."""
        return graph.params(genomes)
