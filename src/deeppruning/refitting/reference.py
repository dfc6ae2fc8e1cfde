"""What the original network answers to some inputs, at some places of each layer; recorded once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

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
MEMORY = 2**29  # bytes that the widest activation of the batch may take
CHUNK = 2**25  # numbers in the patches that are in memory at once
MOST_NUMBERS = 2**22  # kept of each output


@dataclass
class Partner:
    """What a layer's answer is added to: where it is available, and its values in the original."""

    anchor: Anchor
    answers: Tensor  # (inputs, places, filters)


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

    def patches(self, layer: Any, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the inputs with what the layer reads there, in chunks that fit into memory."""
        numbers = self.places.numbers
        groups = getattr(layer, "groups", 1)
        size = max(1, CHUNK // max(1, numbers.shape[1] * layer.weight[0].numel() * groups))
        for start in range(0, len(x), size):
            rows = slice(start, min(start + size, len(x)))
            yield rows, patches_at(layer, x[rows], Places(numbers[rows], self.places.extents))


@dataclass
class Reference:
    """The original on a batch of inputs; `refit` compares thin networks with it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    needed: int = FEWEST  # inputs that would give every layer an equation for each of its unknowns
    layers: dict[str, LayerRecord] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # layers that cannot be refitted, with the reason
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # mean, variance of their inputs
    means: dict[str, Tensor] = field(default_factory=dict)  # of the answers of each layer or norm
    called: frozenset[str] = frozenset()  # modules that ran as such; others are read by someone else
    outputs: list[Tensor] = field(default_factory=list)  # of the network, at some places

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, *, seed: int = 0, device: str | None = None) -> Reference:
        """Run the original once on a batch of inputs: a tensor, a tuple of arguments or a dict of them.

        Without a device it runs on that of the network.
        """
        model = graph.prune(graph.full_genome()).eval()
        if device is not None:
            model.to(device)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        call = onto(as_call(inputs), parameter.device, parameter.dtype)
        count = batch_size(call)
        check_finite(call)
        with seeded():
            readers, widest, needed = _probe(model, call)
            if count < FEWEST:
                raise InputError(
                    f"refit needs at least {FEWEST} inputs to learn from, got {count}; give more "
                    f"({needed} would give every layer an equation for each of its unknowns)"
                )
            share = max(FEWEST, min(count, MEMORY // widest))
            reference = cls(model, *part_of(call, slice(share)), needed=needed)
            reference._record(readers, torch.Generator().manual_seed(seed))
        return reference

    @property
    def device(self) -> torch.device:
        """Where the original was run, and where thin networks are refitted."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def gap(self, thin: nn.Module) -> float:
        """The squared distance between the outputs of a thin network and those of the original."""
        with torch.no_grad():
            return self.gap_of(thin(*self.args, **self.kwargs))

    def gap_of(self, outputs: Any) -> float:
        """The same for outputs that are known."""
        pairs = zip(_sampled(outputs), self.outputs, strict=True)
        return sum(float((values.double() - due.double()).square().sum()) for values, due in pairs)

    def _record(self, readers: Readers, generator: torch.Generator) -> None:
        held: dict[str, Tensor] = {}  # layer -> what its answer will be added to

        def end(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
                return
            self.means[name] = _mean(module, output)
            if isinstance(module, _BatchNorm):
                self.norms[name] = statistics(inputs[0])
                return
            self._look(name, module, inputs[0], output, generator)
            record, other = self.layers.get(name), held.pop(name, None)
            if record is not None and other is not None:
                linear = isinstance(module, nn.Linear)
                answers = answers_at(other, record.places, channels_last=linear)
                record.partner = Partner(readers.sums[name], answers)

        modules = dict(self.model.named_modules())
        handles = []
        for name, anchor in readers.sums.items():
            handles += anchor.hold(modules, partial(held.__setitem__, name))
        for name, module in modules.items():
            if isinstance(module, (*LAYERS, _BatchNorm)):
                handles.append(module.register_forward_hook(lambda m, i, o, name=name: end(name, m, i, o)))
        try:
            output = self.model(*self.args, **self.kwargs)
        finally:
            for handle in handles:
                handle.remove()
        self.outputs = _sampled(output)
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

    def _look(self, name: str, module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        rank = len(module.kernel_size) if isinstance(module, _ConvNd) else 0
        if isinstance(module, _ConvTransposeNd):
            self.left[name] = "it is a transposed convolution"
        elif rank and x.dim() != rank + 2:
            self.left[name] = "its input has no batch"
        elif not bool(torch.isfinite(y).all()):
            raise InputError(f"{name} gives values that are not finite; check weights and inputs")
        else:
            self._sample(name, module, x, y, generator)

    def _sample(self, name: str, module: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        weight = module.weight
        assert isinstance(weight, Tensor)
        unknowns = weight[0].numel()
        if weight.shape[1] > MOST_UNKNOWNS:
            self.left[name] = f"it reads {weight.shape[1]} channels, more than the {MOST_UNKNOWNS} solved for"
            return
        linear = isinstance(module, nn.Linear)
        extents = tuple(y.shape[1:-1] if linear else y.shape[2:])
        enough = -(-ROWS_PER_UNKNOWN * min(unknowns, FULL_SOLVE) // len(x))
        count = min(max(enough, FEWEST_PLACES), MOST_PLACES)
        places = Places.draw(len(x), extents, count, generator)
        reads = None
        if unknowns > FULL_SOLVE:
            patches = patches_at(module, x, places)
            reads = patches[..., patches.shape[-1] // 2].clone()
        answers = answers_at(y, places, channels_last=linear)
        if _answers_by_its_weight(module, x[:2], Places(places.numbers[:2], extents), answers[:2]):
            self.layers[name] = LayerRecord(places, answers, reads)
        else:
            self.left[name] = "its answers are not just its weight times its input"


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


def _mean(module: nn.Module, output: Tensor) -> Tensor:
    channels = output.dim() - 1 if isinstance(module, nn.Linear) else 1
    others = [dimension for dimension in range(output.dim()) if dimension != channels]
    return output.mean(others, dtype=torch.promote_types(output.dtype, torch.float32))


def _probe(model: nn.Module, call: Call) -> tuple[Readers, int, int]:
    """From a run on two inputs: who reads whom, the bytes of the widest activation, and the inputs needed."""
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

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        readers = ReaderRun(model).find(model, *part_of(call, slice(2)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the network cannot run on these inputs: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return readers, widest, needed
