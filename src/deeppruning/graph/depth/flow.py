"""What reads what: for every operation of a run, the operations whose results it sees.

Counted by memory rather than by tensor, so that views and in-place writes are seen for what they are:
whoever reads a piece of memory depends on all that was written to it before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.graph.trace.follow import Follower, tensors_in
from deeppruning.graph.trace.operation import execute


@dataclass(frozen=True)
class Flow:
    """The run as a graph: operation -> operations it reads, those below 0 being the network's inputs."""

    reads: list[frozenset[int]]
    outputs: tuple[frozenset[int], ...]  # of each tensor the network hands back, who wrote it
    calls: dict[str, list[tuple[int, int]]]  # submodule -> (first operation, one past the last) of each call
    pointwise: dict[int, frozenset[int]]  # element-wise operation -> what it reads in its own shape
    overwrites: dict[int, frozenset[int]]  # operation -> who wrote the memory that it writes to in place


@dataclass
class _Memory:
    """Who has written to one piece of memory; holding the memory keeps its address from being used again."""

    storage: torch.UntypedStorage
    writers: set[int] = field(default_factory=set)


class FlowRun(Follower):
    """Runs the network and writes down its flow, operation by operation in the order of the trace."""

    def __init__(self, model: nn.Module, detached: frozenset[str]) -> None:
        super().__init__(model, detached)
        self.reads: list[frozenset[int]] = []
        self.calls: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.memories: dict[int, _Memory] = {}
        self.starts: list[int] = []
        self.pointwise: dict[int, frozenset[int]] = {}
        self.overwrites: dict[int, frozenset[int]] = {}

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow:
        """Run the network on these inputs; the flow is complete when it returns."""
        for number, tensor in enumerate(tensors_in((args, dict(kwargs)))):
            self._memory(tensor).writers.add(-1 - number)
        results = tensors_in(self.run(model, args, kwargs))
        outputs = tuple(self._writers([tensor]) for tensor in results)
        return Flow(self.reads, outputs, dict(self.calls), self.pointwise, self.overwrites)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and note what it reads and where it writes."""
        result = execute(func, args, kwargs)
        outputs = tensors_in(result)
        if outputs:
            inputs = tensors_in((args, kwargs))
            number = len(self.reads)
            if torch.Tag.pointwise in func.tags:
                self.pointwise[number] = self._writers(x for x in inputs if x.shape == outputs[0].shape)
            if func._schema.is_mutable:
                self.overwrites[number] = self._writers(outputs) - {number}
            self._note(inputs, outputs, is_view=func.is_view)
        return result

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A wrapped module counts as one operation; the copy keeps its output apart from its input."""
        fresh = output.clone()
        self._note(tensors_in(inputs), [fresh], is_view=False)
        return fresh

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A submodule starts."""
        self.starts.append(len(self.reads))
        super().enter(module, inputs)

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends: the operations since its start are its own."""
        name = self.stack[-1][0]
        replaced = super().leave(module, inputs, output)
        self.calls[name].append((self.starts.pop(), len(self.reads)))
        return replaced

    def _note(self, inputs: list[Tensor], outputs: list[Tensor], *, is_view: bool) -> None:
        number = len(self.reads)
        self.reads.append(self._writers(inputs))
        if not is_view:
            for tensor in outputs:
                self._memory(tensor).writers.add(number)

    def _writers(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        return frozenset(writer for tensor in tensors for writer in self._memory(tensor).writers)

    def _memory(self, tensor: Tensor) -> _Memory:
        storage = tensor.untyped_storage()
        return self.memories.setdefault(storage._cdata, _Memory(storage))
