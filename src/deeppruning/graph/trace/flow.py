"""Who reads whom: for every operation of a run, the operations whose results it reads.

Tracked by memory rather than by tensor, so that views and in-place writes count: whoever reads a piece of
memory depends on everything that was written to it before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from deeppruning.graph.trace.follow import Follower, execute, execute_blank, tensors_in


@dataclass(frozen=True)
class Flow:
    """A run as a graph of numbered operations; numbers below 0 are the network's inputs."""

    reads: list[frozenset[int]]  # operation -> the operations it reads
    outputs: tuple[frozenset[int], ...]  # of each tensor that the network returns, who wrote it
    calls: dict[str, list[range]]  # submodule -> the operations of each call
    pointwise: dict[int, frozenset[int]]  # element-wise operation -> what it reads in its own shape
    overwrites: dict[int, frozenset[int]]  # operation -> who wrote the memory that it writes to in place
    shapes: dict[str, tuple[int, ...]]  # submodule -> the shape of its last output, if that is a tensor

    @cached_property
    def readers(self) -> list[set[int]]:
        """Operation -> the operations that read it."""
        readers: list[set[int]] = [set() for _ in self.reads]
        for operation, sources in enumerate(self.reads):
            for source in sources:
                if source >= 0:
                    readers[source].add(operation)
        return readers

    @cached_property
    def returned(self) -> frozenset[int]:
        """Whoever wrote to a tensor that the network returns."""
        return frozenset().union(*self.outputs)

    @cached_property
    def needed(self) -> set[int]:
        """The operations that the network's outputs depend on."""
        needed: set[int] = set()
        stack = [operation for operation in self.returned if operation >= 0]
        while stack:
            operation = stack.pop()
            if operation not in needed:
                needed.add(operation)
                stack += [source for source in self.reads[operation] if source >= 0]
        return needed

    def once(self, name: str) -> range | None:
        """The operations of a submodule that is called exactly once and executes any."""
        calls = self.calls.get(name, [])
        return calls[0] if len(calls) == 1 and calls[0] else None

    def read_by(self, call: range) -> set[int]:
        """What a call reads that was written before it."""
        return {source for operation in call for source in self.reads[operation] if source < call.start}

    def readers_of(self, call: range) -> set[int]:
        """The operations outside of a call that read what it wrote."""
        return {reader for operation in call for reader in self.readers[operation] if reader not in call}

    def is_overwritten(self, call: range) -> bool:
        """Whether an operation outside of a call writes in place into its results."""
        wrote = set(call)
        return any(wrote & before for writer, before in self.overwrites.items() if writer not in call)


@dataclass
class Memory:
    """One piece of memory and the operations that have written to it.

    The reference keeps its address from being used again; a weak one does not keep the memory itself.
    """

    reference: StorageWeakRef | Tensor
    writers: set[int] = field(default_factory=set)


class FlowRun(Follower):
    """Runs a network and records its flow, with operations numbered as in a trace."""

    def __init__(
        self, model: nn.Module, detached: frozenset[str] = frozenset(), *, by_shapes: bool = False
    ) -> None:
        super().__init__(model, detached)
        self.execute = execute_blank if by_shapes else execute
        self.reads: list[frozenset[int]] = []
        self.calls: dict[str, list[range]] = defaultdict(list)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.memories: dict[int, Memory] = {}
        self.starts: list[int] = []
        self.pointwise: dict[int, frozenset[int]] = {}
        self.overwrites: dict[int, frozenset[int]] = {}

    def follow(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Flow:
        """Run the network on these inputs and return its flow."""
        for number, tensor in enumerate(tensors_in((args, dict(kwargs)))):
            self.memory(tensor).writers.add(-1 - number)
        results = tensors_in(self.run(model, args, kwargs))
        outputs = tuple(self.writers([tensor]) for tensor in results)
        return Flow(self.reads, outputs, dict(self.calls), self.pointwise, self.overwrites, self.shapes)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and record what it reads and where it writes."""
        inputs = tensors_in((args, kwargs))
        result = self.execute(func, args, kwargs)
        outputs = tensors_in(result)
        if outputs:
            number = len(self.reads)
            if torch.Tag.pointwise in func.tags:
                self.pointwise[number] = self.writers(x for x in inputs if x.shape == outputs[0].shape)
            if func._schema.is_mutable:
                self.overwrites[number] = self.writers(outputs) - {number}
            self._record(inputs, outputs, is_view=func.is_view)
        return result

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A wrapped module counts as one operation; the copy keeps its output apart from its input."""
        fresh = output.clone()
        self._record(tensors_in(inputs), [fresh], is_view=False)
        return fresh

    def enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """A submodule starts."""
        self.starts.append(len(self.reads))
        super().enter(module, inputs)

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends: the operations since its start are its own."""
        name = self.stack[-1][0]
        replaced = super().leave(module, inputs, output)
        self.calls[name].append(range(self.starts.pop(), len(self.reads)))
        if isinstance(output, Tensor):
            self.shapes[name] = tuple(output.shape)
        return replaced

    def writers(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """The operations that have written to these tensors' memory."""
        return frozenset(writer for tensor in tensors for writer in self.memory(tensor).writers)

    def memory(self, tensor: Tensor) -> Memory:
        """The memory that a tensor lies in."""
        if tensor.layout != torch.strided:  # sparse ones have no single storage
            return self.memories.setdefault(id(tensor), Memory(tensor))
        storage = tensor.untyped_storage()
        if storage._cdata not in self.memories:
            self.memories[storage._cdata] = Memory(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        return self.memories[storage._cdata]

    def _record(self, inputs: list[Tensor], outputs: list[Tensor], *, is_view: bool) -> None:
        """Note what an operation reads and writes."""
        number = len(self.reads)
        self.reads.append(self.writers(inputs))
        if not is_view:
            for tensor in outputs:
                self.memory(tensor).writers.add(number)
