"""The size of the saved weights as an objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeppruning.objectives.base import Counted, register_objective

if TYPE_CHECKING:
    from deeppruning.graph import ChannelGraph


@register_objective
class Size(Counted):
    """Bytes of the thin network's parameters and buffers in a file."""

    name = "size"
    label = "Size of the weights"
    unit = "bytes"

    def count(self, graph: ChannelGraph, genomes: Any) -> Any:
        """As the channel graph counts them."""
        return graph.size(genomes)
