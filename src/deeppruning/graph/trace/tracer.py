"""Run a network once, operation by operation, with labels beside its activations.

What the forward code reads of tensors without an operation, sizes and values, cannot be followed further.
Sizes that are read write down what is decided by them (`sizes`) and are tried later. Values that are read
must not change by a cut, and the code that depends on them is seen for one example only.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from deeppruning.graph.atoms import Atoms, AtomTable, Site
from deeppruning.graph.payloads import Channels, Constant, Fixed, Origin, Payload, Statistic
from deeppruning.graph.rules import find_rule
from deeppruning.graph.rules.attention import per_head
from deeppruning.graph.rules.call import Call, Pattern
from deeppruning.graph.rules.operations import ATTENTION_PREFIX
from deeppruning.graph.trace.follow import (
    NUMBERS,
    Follower,
    Number,
    by_name,
    execute,
    is_blank_safe,
    operation_name,
    tensors_in,
)
from deeppruning.graph.trace.reads import Reads, watch_attributes
from deeppruning.graph.trace.sizes import SizeBook


@dataclass
class Record:
    """One executed operation: enough to compare it with the same operation of a thin network."""

    name: str
    layer: str
    modules: tuple[str, ...]  # the call stack of submodules, outermost first
    inputs: list[Channels]
    payloads: list[Payload]
    shapes: list[tuple[int, ...]]
    site: Site  # its place in the code, the same in every run and in both modes
    likes: list[tuple[torch.dtype, torch.device]]  # of the outputs
    patterns: list[Pattern]  # constants of the forward code that differ between channels
    normed: bool = False  # whether it takes a statistic that scales the same channels

    def atoms(self) -> list[Atoms]:
        """The atoms of all input and output channels."""
        channels = [*self.inputs, *(p for p in self.payloads if isinstance(p, Channels))]
        return [payload.atoms for payload in channels]


@dataclass
class Trace:
    """What a run results in besides the atom table."""

    records: list[Record] = field(default_factory=list)
    multiply_adds: dict[str, int] = field(default_factory=dict)  # parameter -> uses per element
    other_multiply_adds: int = 0  # of products that are never cut
    # Of operations that treat every channel alike: the channels, and the multiply-adds per channel.
    channel_multiply_adds: list[tuple[Atoms, int]] = field(default_factory=list)
    # Module with one (N, C, ...) input and output -> their widths; None for any other module.
    maps_channels: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    sizes: list[Atoms] = field(default_factory=list)  # channels whose number the forward code reads
    parameter_sizes: set[tuple[str, int]] = field(default_factory=set)  # and dimensions of parameters
    book: SizeBook = field(default_factory=SizeBook)  # what it decides by sizes
    used: set[str] = field(default_factory=set)  # parameters and buffers that operations read
    notes: list[str] = field(default_factory=list)
    by_shapes: bool = True  # whether its operations and their shapes follow from shapes, whatever the values
    numbers: list[Number] = field(default_factory=list)  # read by the code, where they depend on the input


class Tracer(Follower):
    """Carries labels through a run and records every operation.

    Detached submodules are black boxes: they read their input at full size, and their output gets its own
    atoms (the thin network wraps them accordingly).
    """

    def __init__(self, model: nn.Module, table: AtomTable, *, detached: frozenset[str] = frozenset()) -> None:
        super().__init__(model, detached)
        self.table = table
        self.trace = Trace(book=SizeBook(self._asking))
        self.payloads: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.payloads[tensor] = Origin(name, tuple(tensor.shape))
        self.visits: Counter[Site] = Counter()
        self.normed: set[Site] = set()
        self.consulted: set[Site] = set()  # where statistics were taken that anything reads
        self.live: WeakTensorKeyDictionary = (
            WeakTensorKeyDictionary()
        )  # tensors that depend on the network's input

    def lookup(self, tensor: Tensor) -> Payload:
        """The payload of a tensor, for any use: a statistic over channels freezes them."""
        payload = self.peek(tensor)
        if isinstance(payload, Statistic):
            self.table.freeze(payload.atoms, payload.reason)
            return Fixed(payload.reason)
        return payload

    def peek(self, tensor: Tensor) -> Payload:
        """The payload of a tensor; one of unknown origin must keep its size."""
        payload = self.payloads.get(tensor, None)  # type: ignore[no-untyped-call]
        if payload is None:
            return Fixed("a tensor that is neither parameter nor buffer")
        assert isinstance(payload, Payload)
        if isinstance(payload, Origin):
            self.trace.used.add(payload.name)
        elif isinstance(payload, Statistic):
            self.consulted |= payload.sites
        return payload

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation, apply its rule to the labels and record it."""
        with self.trace.book.shut():
            return self._labelled(func, args, kwargs)

    def _labelled(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one operation and give its results the labels of its rule."""
        result = execute(func, args, kwargs)
        outputs = tensors_in(result)
        self.trace.by_shapes &= bool(outputs) and is_blank_safe(func)
        layer, module = self.stack[-1] if self.stack else ("", None)
        name = operation_name(func)
        if not outputs:
            if name in NUMBERS:
                for tensor in tensors_in(args):
                    self.take_out(tensor, NUMBERS[name])
            return result
        call = Call(
            name=name,
            function=func,
            args=by_name(func, args, kwargs),
            outputs=outputs,
            table=self.table,
            lookup=self.lookup,
            layer=layer,
            module=module,
            site=self._site(name),
            peek=self.peek,
            modules=tuple(module for module, _ in self.stack),
        )
        inputs = call.inputs()
        if any(tensor in self.live for tensor in call.tensors()):
            self.live.update(dict.fromkeys(outputs, True))
        self._count(call, func, args, kwargs, result)
        payloads = find_rule(call)(call)
        for tensor, payload in zip(outputs, payloads, strict=True):
            # A parameter or statistic that is written to keeps its payload.
            if not (call.in_place and isinstance(self.peek(tensor), Origin)):
                self.payloads[tensor] = payload
            base = tensor._base if call.in_place and isinstance(payload, Channels) else None
            if base is not None and isinstance(self.peek(base), Constant):
                self.payloads[base] = payload  # channels were written into a part of it
        self.normed |= call.normed
        self._write_down(call, inputs + call.touched, payloads)
        return result

    def run(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the model, noting also what its code reads of tensors beside the operations."""
        book = self.trace.book
        watch_attributes(model, book)
        try:
            with Reads(self.read_size, self.take_out, book.hand_over):
                return super().run(model, args, kwargs)
        finally:
            book.closed = True  # sizes may live on, in caches of the network

    def read_size(self, tensor: Tensor, dimension: int | None, read: Any) -> Any:
        """The forward code reads the size of a tensor along one dimension, or along all; what it is given."""
        payload = None if self.inside_detached else self.payloads.get(tensor, None)  # type: ignore[no-untyped-call]
        if isinstance(payload, Origin):
            places = range(tensor.ndim) if dimension is None else [dimension % tensor.ndim]
            sources: dict[int, Any] = {place: (payload.name, place) for place in places}
            if not payload.unmoved:
                places, sources = range(len(payload.shape)), {}  # any of them may lie there
            self.trace.parameter_sizes |= {(payload.name, place) for place in places}
        elif isinstance(payload, Channels) and dimension in (
            None,
            payload.dimension,
            payload.dimension - tensor.ndim,
        ):
            self.trace.sizes.append(payload.atoms)
            sources = {payload.dimension: payload.atoms}
        else:
            return read
        book = self.trace.book
        if not isinstance(read, tuple) and dimension is None:  # the number of elements
            rest = math.prod(size for place, size in enumerate(tensor.shape) if place not in sources)
            counted = [book.size(tensor.shape[place], source) for place, source in sources.items()]
            return math.prod(counted, start=rest)
        sizes = [
            book.size(size, sources[place]) if place in sources else size
            for place, size in enumerate(tensor.shape)
        ]
        return torch.Size(sizes) if isinstance(read, tuple) else sizes[dimension or 0]

    def taken_out(self, number: Number, tensors: list[Tensor]) -> Number:
        """Remember the number, by which other runs go the same way; one that is drawn is not the way's."""
        self.trace.numbers.append(number if any(tensor in self.live for tensor in tensors) else None)
        return number

    def take_out(self, tensor: Tensor, name: str) -> None:
        """Values leave the tensors: a cut must not change them, since their use is unknown."""
        self.trace.by_shapes = False
        if self.inside_detached:
            return
        payload = self.lookup(tensor)
        place = f"{name} in {(self.stack[-1][0] if self.stack else '') or 'forward'}"
        reason = f"{place} takes values out of the network"
        if isinstance(payload, Channels):
            self.table.freeze(payload.atoms, reason)
        elif isinstance(payload, Origin) and tensor.numel() > 1:
            self.table.pin(payload.name, reason)
        note = f"{place} reads values: what they decide about was followed for the example input only"
        if tensor in self.live and note not in self.trace.notes:
            self.trace.notes.append(note)

    def hidden_operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside a detached module everything runs at full width, also in a thin network."""
        result = execute(func, args, kwargs)
        self.trace.by_shapes &= bool(tensors_in(result)) and is_blank_safe(func)
        self.trace.other_multiply_adds += _multiply_adds(func, args, kwargs, result)
        return result

    def _asking(self) -> str:
        """The module whose code is at work."""
        return (self.stack[-1][0] if self.stack else "") or "forward"

    def _site(self, name: str) -> Site:
        """Where in the network, and which call of it, this is: the key of its atoms."""
        place = (*(module for module, _ in self.stack), name)
        self.visits[place] += 1
        return (*place, self.visits[place])

    def _write_down(self, call: Call, inputs: list[Channels], payloads: list[Payload]) -> None:
        """Record the operation with its channels."""
        shapes = [tuple(tensor.shape) for tensor in call.outputs]
        modules = tuple(name for name, _ in self.stack)
        likes = [(tensor.dtype, tensor.device) for tensor in call.outputs]
        self.trace.records.append(
            Record(call.name, call.layer, modules, inputs, payloads, shapes, call.site, likes, call.patterns)
        )
        if _depends_on_width(call):
            self.trace.sizes += [payload.atoms for payload in inputs]

    def _count(self, call: Call, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Multiply-adds: the uses of each weight element, or a fixed number where none is cut."""
        multiply_adds = _multiply_adds(func, args, kwargs, result)
        if not multiply_adds:
            return
        weights = [payload for payload in map(self.lookup, call.tensors()) if isinstance(payload, Origin)]
        # A layer may read a parameter too; its weights come after what it reads.
        weight = next((origin for origin in reversed(weights) if len(origin.shape) > 1), None)
        if weight is None and call.name in ("mm", "bmm"):  # which have no bias that it could be
            weight = next(iter(weights), None)
        read = next(map(self.lookup, call.tensors()))
        if call.name == "convolution" and weight and weight.repeats(0) and isinstance(read, Channels):
            each = multiply_adds // len(read.atoms)
            self.trace.channel_multiply_adds.append((read.atoms, each))
            return
        alike = per_head(call) if weight is None else None
        if alike is not None:
            self.trace.channel_multiply_adds.append((alike, multiply_adds // len(alike)))
            return
        size = math.prod(weight.shape) if weight else 1
        if weight is None or multiply_adds % size:
            self.trace.other_multiply_adds += multiply_adds
            return
        uses = self.trace.multiply_adds
        uses[weight.name] = uses.get(weight.name, 0) + multiply_adds // size

    def leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """A submodule ends: note whether it can be detached, which requires the same widths at every call."""
        with torch._C.DisableTorchFunction():  # sizes read here are not read by the network
            tensors = (*inputs, output)
            fits = len(inputs) == 1 and all(isinstance(x, Tensor) and x.ndim >= 2 for x in tensors)
            fits = fits and inputs[0].shape[0] == output.shape[0]
            widths = (inputs[0].shape[1], output.shape[1]) if fits else None
            first_widths = self.trace.maps_channels.setdefault(self.stack[-1][0], widths)
            if first_widths != widths:
                self.trace.maps_channels[self.stack[-1][0]] = None
            return super().leave(module, inputs, output)

    def detached_module(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """The output of a detached module gets its own atoms."""
        incoming = self.lookup(inputs[0])
        atoms = self.table.issue((name, "output"), output.shape[1], kind="module", layer=name)
        self.table.bind(f"{name}.output", 1, atoms)
        if isinstance(incoming, Channels):
            self.table.bind(f"{name}.input", 1, incoming.atoms)
        # A module may return its own input; the copy keeps the two sets of labels apart.
        fresh = output.clone()
        site = self._site("module")
        call = Call("module", None, {}, [fresh], self.table, self.lookup, name, module, site, self.peek)
        self.payloads[fresh] = Channels(1, atoms)
        self._write_down(call, [incoming] if isinstance(incoming, Channels) else [], [Channels(1, atoms)])
        return fresh


def _depends_on_width(call: Call) -> bool:
    """Whether the operation may do nothing at one width and something at another."""
    if call.name == "squeeze":  # takes away what is of size 1
        return "dim" not in call.args
    if call.name != "roll":  # by the full width, or more, it goes all the way round
        return False
    payload, dims = call.payload("self"), call.args.get("dims") or ()
    rank = call.outputs[0].ndim
    return isinstance(payload, Channels) and (not dims or payload.dimension in {d % rank for d in dims})


def _multiply_adds(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """By torch's own counter, which counts a multiplication and an addition as two."""
    counter = flop_registry.get(func.overloadpacket)
    if counter is not None:
        return int(counter(*args, **kwargs, out_val=result)) // 2
    if operation_name(func).startswith(ATTENTION_PREFIX):  # the registry lacks some of its kernels
        queries, keys, values = args[:3]
        pairs = math.prod(queries.shape[:-1]) * keys.shape[-2]  # of a query and a key
        return int(pairs * (queries.shape[-1] + values.shape[-1]))
    return 0


def run_on_labels(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], tracer: Tracer
) -> Trace:
    """Run the model under the tracer; channels that reach the outputs must stay."""
    for tensor in tensors_in((args, dict(kwargs))):
        tracer.payloads[tensor] = Fixed("the network's input")
        tracer.live[tensor] = True
    for tensor in tensors_in(tracer.run(model, args, kwargs)):
        payload = tracer.lookup(tensor)
        if isinstance(payload, Channels):
            tracer.table.freeze(payload.atoms, "the network's output")
    for record in tracer.trace.records:
        record.normed = record.site in tracer.normed
        if tracer.table.whole_heads:  # attention may return a mean over its heads that nobody reads
            idle = (isinstance(p, Statistic) and not p.sites & tracer.consulted for p in record.payloads)
            record.payloads = [Constant() if x else p for x, p in zip(idle, record.payloads, strict=True)]
    return tracer.trace
