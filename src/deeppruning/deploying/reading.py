"""Which module reads which, by the graph's account of one run in evaluation mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from deeppruning.graph.cut.duplicate import unrun
from deeppruning.graph.proof.twin import seeded
from deeppruning.graph.trace.flow import Flow, FlowRun


class SeenRun:
    """One run of a network: operations are numbers, a call of a module is a range of them."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        copy = unrun(model, training=False)
        with seeded():
            flow: Flow = FlowRun(copy).follow(copy, args, kwargs)
        self.flow = flow
        self.shapes = flow.shapes  # module -> the shape of its last output
        self.handed_back, self.heard = flow.returned, flow.needed
        self.once, self.read_by, self.readers_of = flow.once, flow.read_by, flow.readers_of
        self.is_overwritten = flow.is_overwritten
