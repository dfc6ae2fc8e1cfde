"""FLOPs, the paper's objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeppruning.objectives.base import Counted, register_objective

if TYPE_CHECKING:
    from deeppruning.graph import ChannelGraph


@register_objective
class Flops(Counted):
    """Multiply-adds of convolutions and linear layers for one input."""

    name = "flops"
    label = "FLOPs"
    column = "flops"

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """As the channel graph counts them."""
        return graph.flops(genomes)
