"""What the original network answers to some inputs, at some places of each layer; recorded once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.hooks import RemovableHandle

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, check_finite, onto, part_of
from deeppruning.graph.proof.twin import seeded
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.patches import Places, answers_at, patches_at
from deeppruning.refitting.readers import LAYERS, Anchor, ReaderRun, Readers

FEWEST = 16  # inputs below which nothing can be said about a layer
ROWS_PER_UNKNOWN = 6
FEWEST_PLACES, MOST_PLACES = 8, 64
FULL_SOLVE = 2304  # unknowns per filter above which channels are mixed instead
MOST_UNKNOWNS = 8192  # channels above which a layer is left as cut
MEMORY = 2**33  # bytes that the activations of all inputs may take while they wait for each other at a layer
ALIVE = (
    2  # widest activations that an input needs while it waits: a layer's input, a shortcut, what is recorded
)
PART = 2**27  # bytes of the widest activation of one part of the batch; fits into caches, more or less
CHUNK = 2**25  # numbers in the patches that are in memory at once
MOST_NUMBERS = 2**22  # kept of each output


@dataclass
class Partner:
    """What a layer's answer is added to: where it is available, and its values in the original."""

    anchor: Anchor
    answers: Tensor  # (inputs, places, filters)


class Moments:
    """Mean and variance of each channel over all parts of a batch."""

    def __init__(self) -> None:
        self._inputs = 0
        self._mean = self._square = torch.zeros((), dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Add a part."""
        mean, variance = (values.double() for values in statistics(x))
        share = len(x) / (self._inputs + len(x))
        self._inputs += len(x)
        self._mean = self._mean + share * (mean - self._mean)
        self._square = self._square + share * (variance + mean.square() - self._square)

    def result(self) -> tuple[Tensor, Tensor]:
        """Mean and variance, in single precision."""
        variance = (self._square - self._mean.square()).clamp_min(0.0)
        return self._mean.float(), variance.float()


@dataclass
class LayerRecord:
    """One convolution or linear layer: the places looked at, its answers there and, if large, its inputs."""

    places: Places
    answers: Tensor  # (inputs, places, filters)
    reads: Tensor | None  # (inputs, places, channels): at the middle of each patch
    norm: str | None = None  # the batch norm that alone reads the answers: it removes any offset
    partner: Partner | None = None

    @property
    def rows(self) -> int:
        """The number of equations for each filter."""
        return self.places.numbers.numel()

    def patches(self, layer: Any, x: Tensor, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """What the layer reads of these inputs, in chunks that fit into memory, each with its rows of `x`."""
        numbers = self.places.numbers[rows]
        groups = getattr(layer, "groups", 1)
        size = max(1, CHUNK // max(1, numbers.shape[1] * layer.weight[0].numel() * groups))
        for start in range(0, len(x), size):
            chunk = slice(start, min(start + size, len(x)))
            yield chunk, patches_at(layer, x[chunk], Places(numbers[chunk], self.places.extents))


@dataclass
class Reference:
    """The original on a batch of inputs; `refit` compares thin networks with it."""

    model: nn.Module
    parts: list[Call]  # the inputs, in parts that run one after another
    rows: list[slice]  # the inputs of each part
    needed: int = FEWEST  # inputs that would give every layer an equation for each of its unknowns
    layers: dict[str, LayerRecord] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # layers that cannot be refitted, with the reason
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # mean, variance of their inputs
    means: dict[str, Tensor] = field(default_factory=dict)  # of the answers of each layer or norm
    called: frozenset[str] = frozenset()  # modules that ran as such; others are read by someone else
    outputs: list[list[Tensor]] = field(default_factory=list)  # of each part, at some places

    @classmethod
    def of(
        cls,
        graph: ChannelGraph,
        inputs: Any,
        *,
        seed: int = 0,
        device: str | None = None,
        memory: int = MEMORY,
    ) -> Reference:
        """Run the original once on a batch of inputs: a tensor, a tuple of arguments or a dict of them.

        Without a device it runs on that of the network. `memory` in bytes limits how many inputs are used.
        """
        model = graph.prune(graph.full_genome()).eval()
        if device is not None:
            model.to(device)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        call = onto(as_call(inputs), parameter.device, parameter.dtype)
        check_finite(call)
        with seeded():
            probe = _probe(model, call)
            count = batch_size(call)
            if count < FEWEST:
                raise InputError(
                    f"refit needs at least {FEWEST} inputs to learn from, got {count}; give more "
                    f"({probe.needed} would give every layer an equation for each of its unknowns)"
                )
            count = max(FEWEST, min(count, memory // (ALIVE * probe.widest)))
            parts = 1 if probe.keeps_state else -(-count * probe.widest // PART)
            bounds = [count * part // parts for part in range(parts + 1)]
            rows = [slice(first, last) for first, last in pairwise(bounds)]
            reference = cls(model, [part_of(call, some) for some in rows], rows, probe.needed)
            reference._record(probe.readers, torch.Generator().manual_seed(seed))
        return reference

    @property
    def device(self) -> torch.device:
        """Where the original was run, and where thin networks are refitted."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    @property
    def count(self) -> int:
        """The number of inputs."""
        return int(self.rows[-1].stop)

    def gap(self, thin: nn.Module) -> float:
        """The squared distance between the outputs of a thin network and those of the original."""
        with torch.no_grad():
            return sum(
                self.gap_of(thin(*args, **kwargs), part) for part, (args, kwargs) in enumerate(self.parts)
            )

    def gap_of(self, outputs: Any, part: int) -> float:
        """The same for known outputs of one part of the inputs."""
        pairs = zip(_sampled(outputs), self.outputs[part], strict=True)
        return sum(float((values.double() - due.double()).square().sum()) for values, due in pairs)

    def _record(self, readers: Readers, generator: torch.Generator) -> None:
        recorder = _Recorder(self, readers, generator)
        handles = recorder.watch()
        try:
            for args, kwargs in self.parts:
                self.outputs.append(_sampled(self.model(*args, **kwargs)))
        finally:
            for handle in handles:
                handle.remove()
        self.layers, self.left = recorder.layers(), recorder.left
        self.norms = {name: moments.result() for name, moments in recorder.norms.items()}
        self.means = recorder.means
        self.called = frozenset(readers.calls)
        self._leave(readers.calls)
        for name, norm in readers.norms.items():
            if name in self.layers:
                self.layers[name].norm = norm

    def _leave(self, calls: Mapping[str, int]) -> None:
        """Take out what one solution cannot serve."""
        shared = Counter(
            id(p) for module in self.model.modules() for p in module._parameters.values() if p is not None
        )
        for name, module in self.model.named_modules():
            count = calls.get(name, 0)
            if isinstance(module, _BatchNorm) and count > 1:
                self.norms.pop(name, None)
                self.left[name] = f"it is called {count} times"
            if not isinstance(module, LAYERS):
                continue
            own = module._parameters.get("weight")
            if count == 0:
                self.left[name] = "it was not called as a module in the run"
            elif count > 1:
                self.left[name] = f"it is called {count} times"
            elif own is None and name not in self.left:
                self.left[name] = "its weight is computed from other parameters"
            elif own is not None and shared[id(own)] > 1:
                self.left[name] = "it shares its weight with another layer"
            if name in self.left:
                self.layers.pop(name, None)


class _Recorder:
    """Hooks on the original that record its layers while it runs, part by part."""

    def __init__(self, reference: Reference, readers: Readers, generator: torch.Generator) -> None:
        self.model, self.count = reference.model, reference.count
        self.readers, self.generator = readers, generator
        self.left: dict[str, str] = {}
        self.norms: dict[str, Moments] = {}
        self.means: dict[str, Any] = {}
        self._layers = {norm: layer for layer, norm in readers.norms.items()}
        self._held: dict[str, Tensor] = {}  # layer -> what its answer will be added to
        self._pieces: dict[str, list[LayerRecord]] = {}  # of each part

    def watch(self) -> list[RemovableHandle]:
        """Hook all layers and norms."""
        modules, handles = dict(self.model.named_modules()), []
        for name, anchor in self.readers.sums.items():
            handles += anchor.hold(modules, partial(self._held.__setitem__, name))
        for name, module in modules.items():
            if isinstance(module, (*LAYERS, _BatchNorm)):
                handles.append(module.register_forward_hook(partial(self._end, name)))
        return handles

    def layers(self) -> dict[str, LayerRecord]:
        """The records of all layers that can be refitted."""
        return {name: _joined(pieces) for name, pieces in self._pieces.items() if name not in self.left}

    def _end(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            return
        self._add_mean(name, module, output)
        if isinstance(module, _BatchNorm):
            if self._layers.get(name, "") not in self._pieces:  # otherwise it is adapted with that layer
                self.norms.setdefault(name, Moments()).add(inputs[0])
            return
        other = self._held.pop(name, None)
        if name in self.left:
            return
        record = self._look(name, module, inputs[0], output)
        if record is None:
            return
        if other is not None:
            answers = answers_at(other, record.places, channels_last=isinstance(module, nn.Linear))
            record.partner = Partner(self.readers.sums[name], answers)
        self._pieces.setdefault(name, []).append(record)

    def _add_mean(self, name: str, module: nn.Module, output: Tensor) -> None:
        channels = output.dim() - 1 if isinstance(module, nn.Linear) else 1
        others = [dimension for dimension in range(output.dim()) if dimension != channels]
        mean = output.mean(others, dtype=torch.promote_types(output.dtype, torch.float32))
        self.means[name] = self.means.get(name, 0) + len(output) / self.count * mean

    def _look(self, name: str, module: nn.Module, x: Tensor, y: Tensor) -> LayerRecord | None:
        rank = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
        weight = module.weight
        assert isinstance(weight, Tensor)
        if isinstance(module, _ConvTransposeNd):
            self.left[name] = "it is a transposed convolution"
        elif rank and x.dim() != rank + 2:
            self.left[name] = "its input has no batch"
        elif not bool(self.means[name].isfinite().all()):
            raise InputError(f"{name} gives values that are not finite; check weights and inputs")
        elif weight.shape[1] > MOST_UNKNOWNS:
            self.left[name] = f"it reads {weight.shape[1]} channels, more than the {MOST_UNKNOWNS} solved for"
        else:
            return self._sample(name, module, x, y)
        return None

    def _sample(self, name: str, module: nn.Module, x: Tensor, y: Tensor) -> LayerRecord | None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        unknowns = weight[0].numel()
        linear = isinstance(module, nn.Linear)
        extents = tuple(y.shape[1:-1] if linear else y.shape[2:])
        enough = -(-ROWS_PER_UNKNOWN * min(unknowns, FULL_SOLVE) // self.count)
        places = Places.draw(len(x), extents, min(max(enough, FEWEST_PLACES), MOST_PLACES), self.generator)
        reads = None
        if unknowns > FULL_SOLVE:
            patches = patches_at(module, x, places)
            reads = patches[..., patches.shape[-1] // 2].clone()
        answers = answers_at(y, places, channels_last=linear)
        if _answers_by_its_weight(module, x[:2], Places(places.numbers[:2], extents), answers[:2]):
            return LayerRecord(places, answers, reads)
        self.left[name] = "its answers are not just its weight times its input"
        return None


def _joined(pieces: Sequence[LayerRecord]) -> LayerRecord:
    """One record of all parts."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    places = Places(torch.cat([piece.places.numbers for piece in pieces]), first.places.extents)
    reads = [piece.reads for piece in pieces if piece.reads is not None]
    partners = [piece.partner for piece in pieces if piece.partner is not None]
    partner = None
    if len(partners) == len(pieces):
        partner = Partner(partners[0].anchor, torch.cat([each.answers for each in partners]))
    answers = torch.cat([piece.answers for piece in pieces])
    return LayerRecord(places, answers, torch.cat(reads) if reads else None, partner=partner)


def _answers_by_its_weight(module: Any, x: Tensor, places: Places, answers: Tensor) -> bool:
    """Whether a layer does what its type does; a user's own class may scale its weight or pad its input."""
    groups = getattr(module, "groups", 1)
    rows = patches_at(module, x, places)
    weight = module.weight.reshape(groups, module.weight.shape[0] // groups, -1).double()
    rows = rows.reshape(*rows.shape[:2], groups, -1).double()
    if rows.shape[-1] != weight.shape[-1]:
        return False
    expected = torch.einsum("npgu,gou->npgo", rows, weight).flatten(2)
    expected = expected if module.bias is None else expected + module.bias
    tolerance = 0.03 if answers.element_size() < 4 else 1e-3
    return bool((expected - answers).abs().max() <= tolerance * answers.abs().max() + 1e-6)


def _sampled(outputs: Any) -> list[Tensor]:
    """An even sample of each output: whole segmentation maps would fill the memory."""
    flat = [tensor.flatten() for tensor in tensors_in(outputs) if tensor.is_floating_point()]
    return [tensor[:: -(-len(tensor) // MOST_NUMBERS) or 1].clone() for tensor in flat]


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel."""
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    if values.device.type == "cpu":  # what batch norm itself uses takes a third of the time
        mean, variance = torch.batch_norm_update_stats(values, None, None, 0.0)
    else:
        variance, mean = torch.var_mean(values, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, variance


@dataclass(frozen=True)
class _Probe:
    """What a run on two inputs shows."""

    readers: Readers
    widest: int  # bytes of the widest activation of one input
    needed: int  # inputs that would give every layer an equation for each of its unknowns
    keeps_state: bool  # whether modules keep values between calls: parts would read each other's


def _probe(model: nn.Module, call: Call) -> _Probe:
    widest, needed = 1, FEWEST

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest, needed
        if not isinstance(output, Tensor):
            return
        widest = max(widest, output.numel() * output.element_size() // 2)
        if isinstance(module, LAYERS) and isinstance(module.weight, Tensor) and output.dim() > 1:
            places = math.prod(output.shape[1:]) // max(1, module.weight.shape[0])  # no operation of its own
            unknowns = math.prod(module.weight.shape[1:])
            unknowns = unknowns if unknowns <= FULL_SOLVE else module.weight.shape[1]
            needed = max(needed, -(-unknowns // max(1, min(places, MOST_PLACES))))

    before = _state(model)
    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        readers = ReaderRun(model).find(model, *part_of(call, slice(2)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the network cannot run on these inputs: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return _Probe(readers, widest, needed, keeps_state=_state(model) != before)


def bytes_per_input(model: nn.Module, call: Call) -> int:
    """The memory that one input takes in a refit, from a run on one input."""
    widest = 1

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest
        if isinstance(output, Tensor):
            widest = max(widest, output.numel() * output.element_size())

    handles = [module.register_forward_hook(look) for module in model.modules()]
    args, kwargs = part_of(call, slice(1))
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return ALIVE * widest


def _state(model: nn.Module) -> dict[tuple[int, str], Any]:
    """What modules hold beside parameters; buffers with the number of changes in place."""
    held: dict[tuple[int, str], Any] = {}
    for number, module in enumerate(model.modules()):
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        held |= {(number, name): id(value) for name, value in own.items()}
        held |= {(number, name): (id(b), b._version) for name, b in module._buffers.items() if b is not None}
    return held
