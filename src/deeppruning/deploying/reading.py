"""Which module reads which, seen in one run: who alone reads a layer, and who is heard at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from deeppruning.graph.cut.duplicate import unrun
from deeppruning.graph.proof.twin import seeded
from deeppruning.graph.trace.flow import Flow, FlowRun


class SeenRun:
    """One run of a network in evaluation mode, with what is asked of it."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        copy = unrun(model, training=False)
        follower = _ShapedRun(copy)
        with seeded():
            self.flow: Flow = follower.follow(copy, args, kwargs)
        self.shapes = follower.shapes  # module -> the shape of what it gave last
        self.handed_back = frozenset().union(*self.flow.outputs)
        self.readers: list[set[int]] = [set() for _ in self.flow.reads]
        for operation, sources in enumerate(self.flow.reads):
            for source in sources:
                if source >= 0:
                    self.readers[source].add(operation)
        self.heard = self._heard()

    def once(self, name: str) -> range | None:
        """The operations of a module that is called exactly once, and does something."""
        spans = self.flow.calls.get(name, [])
        return spans[0] if len(spans) == 1 and spans[0] else None

    def read_by(self, span: range) -> set[int]:
        """What a call reads that others wrote; below 0 are the network's inputs."""
        return {source for operation in span for source in self.flow.reads[operation] if source < span.start}

    def readers_of(self, span: range) -> set[int]:
        """Who else reads what a call wrote."""
        return {reader for operation in span for reader in self.readers[operation] if reader not in span}

    def is_overwritten(self, span: range) -> bool:
        """Whether someone writes in place into what a call gave."""
        wrote = set(span)
        return any(wrote & before for reader, before in self.flow.overwrites.items() if reader not in span)

    def _heard(self) -> set[int]:
        """The operations that the network's outputs depend on."""
        found: set[int] = set()
        stack = [operation for operation in self.handed_back if operation >= 0]
        while stack:
            operation = stack.pop()
            if operation not in found:
                found.add(operation)
                stack += [source for source in self.flow.reads[operation] if source >= 0]
        return found


class _ShapedRun(FlowRun):
    """A run that also notes the shape of what each module gives."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, frozenset())
        self.shapes: dict[str, tuple[int, ...]] = {}

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends."""
        if isinstance(output, Tensor):
            self.shapes[self.stack[-1][0]] = tuple(output.shape)
        return super().leave(module, inputs, output)
