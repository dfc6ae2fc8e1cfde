"""What the original network answers to some inputs, at some places of each layer: recorded once a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, check_finite, onto, part_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.patches import Places, answers_at, patches_at
from deeppruning.refitting.readers import Anchor, Readers

FEWEST = 16  # inputs below which nothing can be said about a layer
ROWS_AN_UNKNOWN = 6
FEWEST_PLACES, MOST_PLACES = 8, 64
FULL_SOLVE = 2304  # unknowns of a filter above which channels are mixed instead
MOST_UNKNOWNS = 8192  # channels above which a layer is left as cut
MEMORY = 2**29  # bytes that the widest activation of the batch may take
MOST_NUMBERS = 2**22  # of each output that are kept
LAYERS = (_ConvNd, nn.Linear)


@dataclass
class Partner:
    """What a layer's answer is added to: where it is found, and what it was in the original."""

    anchor: Anchor
    answers: Tensor  # (inputs, places, filters)


@dataclass
class LayerAnswers:
    """One convolution or linear layer: where it was looked at, what it answered and, if large, read."""

    places: Places
    answers: Tensor  # (inputs, places, filters)
    reads: Tensor | None  # (inputs, places, channels): at the middle of each patch
    norm: str | None = None  # a batch norm that alone reads the answers, at once: it takes any offset away
    partner: Partner | None = None

    @property
    def rows(self) -> int:
        """How many equations each filter has."""
        return self.places.numbers.numel()


@dataclass
class Reference:
    """The original on a batch of inputs; `refit` holds thin networks against it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    needed: int = FEWEST  # inputs that would give every layer an equation for each of its unknowns
    layers: dict[str, LayerAnswers] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # layers that cannot be refitted, with the reason
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # mean, variance of their inputs
    means: dict[str, Tensor] = field(default_factory=dict)  # of what each layer or norm answers
    called: frozenset[str] = frozenset()  # modules that ran as such; others are read by someone else
    outputs: list[Tensor] = field(default_factory=list)  # what it answers in the end, at some places

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, *, seed: int = 0, device: str | None = None) -> Reference:
        """Run the original once on the inputs: a batch, a tuple of positional or a dict of named ones.

        Without a device it is that of the network.
        """
        model = graph.prune(graph.full_genome()).eval()
        if device is not None:
            model.to(device)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        call = onto(as_call(inputs), parameter.device, parameter.dtype)
        count = batch_size(call)
        check_finite(call)
        with torch.no_grad():
            widest, needed = _probe(model, call)
            if count < FEWEST:
                raise InputError(
                    f"refit needs at least {FEWEST} inputs to learn from, got {count}; give more "
                    f"({needed} would give every layer an equation for each of its unknowns)"
                )
            share = max(FEWEST, min(count, MEMORY // widest))
            reference = cls(model, *part_of(call, slice(share)), needed=needed)
            reference._record(torch.Generator().manual_seed(seed))
        return reference

    @property
    def device(self) -> torch.device:
        """Where the original was run, and where thin networks are refitted."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def gap(self, thin: nn.Module) -> float:
        """How far the outputs of a thin network are from the original's, in sum of squares."""
        with torch.no_grad():
            return self.gap_of(thin(*self.args, **self.kwargs))

    def gap_of(self, outputs: Any) -> float:
        """The same for outputs that are known."""
        pairs = zip(_thinned(outputs), self.outputs, strict=True)
        return sum(float((found.double() - due.double()).square().sum()) for found, due in pairs)

    def _record(self, generator: torch.Generator) -> None:
        def other_at(layer: str, other: Tensor) -> Tensor | None:
            known = self.layers.get(layer)
            if known is None:
                return None
            linear = isinstance(self.model.get_submodule(layer), nn.Linear)
            return answers_at(other, known.places, channels_last=linear)

        readers = Readers(other_at)
        plain = {n for n, m in self.model.named_modules() if next(m.parameters(), None) is None}

        def begin(name: str, inputs: tuple[Any, ...]) -> None:
            readers.begins(name, inputs)

        def end(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            readers.paused = True
            readers.ends(name, inputs, output, plain=name in plain)
            if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
                if isinstance(module, _BatchNorm):
                    self.norms[name] = statistics(inputs[0])
                    readers.normed(name, inputs[0], output)
                elif isinstance(module, LAYERS):
                    self._look(name, module, inputs[0], output, generator)
                    readers.answers(name, output)
                if isinstance(module, (*LAYERS, _BatchNorm)):
                    self.means[name] = _mean(module, output)
            readers.paused = False

        hooks = []
        for name, module in self.model.named_modules():
            hooks.append(module.register_forward_pre_hook(lambda m, i, name=name: begin(name, i)))
            hooks.append(module.register_forward_hook(lambda m, i, o, name=name: end(name, m, i, o)))
        try:
            with readers:
                output = self.model(*self.args, **self.kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        readers.returned(tensors_in(output))
        self.outputs = _thinned(output)
        self.called = frozenset(readers.calls)
        self._leave(readers.calls)
        for name, norm in readers.norms():
            if name in self.layers:
                self.layers[name].norm = norm
        for name, through, anchor, answers in readers.sums():
            known = self.layers.get(name)
            if known is not None and answers is not None and through == known.norm:
                known.partner = Partner(anchor, answers)

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
            raise InputError(
                f"{name} of the original answers with numbers that are not finite; check weights and inputs"
            )
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
        wanted = -(-ROWS_AN_UNKNOWN * min(unknowns, FULL_SOLVE) // len(x))
        count = min(max(wanted, FEWEST_PLACES), MOST_PLACES)
        places = Places.draw(len(x), extents, count, generator)
        reads = None
        if unknowns > FULL_SOLVE:
            patches = patches_at(module, x, places)
            reads = patches[..., patches.shape[-1] // 2].clone()
        answers = answers_at(y, places, channels_last=linear)
        if _answers_by_its_weight(module, x[:2], Places(places.numbers[:2], extents), answers[:2]):
            self.layers[name] = LayerAnswers(places, answers, reads)
        else:
            self.left[name] = "its answers are not simply its weight times what it reads"


def _answers_by_its_weight(module: Any, x: Tensor, places: Places, answers: Tensor) -> bool:
    """Whether a layer does what its kind does; a class of one's own may scale its weight or pad its input."""
    groups = getattr(module, "groups", 1)
    rows = patches_at(module, x, places)
    weight = module.weight.reshape(groups, module.weight.shape[0] // groups, -1).double()
    rows = rows.reshape(*rows.shape[:2], groups, -1).double()
    if rows.shape[-1] != weight.shape[-1]:
        return False
    found = torch.einsum("npgu,gou->npgo", rows, weight).flatten(2)
    found = found if module.bias is None else found + module.bias
    tolerance = 0.03 if answers.element_size() < 4 else 1e-3
    return bool((found - answers).abs().max() <= tolerance * answers.abs().max() + 1e-6)


def _thinned(outputs: Any) -> list[Tensor]:
    """Some numbers of each output, spread evenly: whole maps of classes would fill the memory."""
    found = [tensor.flatten() for tensor in tensors_in(outputs) if tensor.is_floating_point()]
    return [tensor[:: -(-len(tensor) // MOST_NUMBERS) or 1].clone() for tensor in found]


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel."""
    values = x.to(torch.promote_types(x.dtype, torch.float32))
    if values.device.type == "cpu":  # what batch norm itself uses there takes a third of the time
        mean, variance = torch.batch_norm_update_stats(values, None, None, 0.0)
    else:
        variance, mean = torch.var_mean(values, [d for d in range(x.dim()) if d != 1], correction=0)
    return mean, variance


def _mean(module: nn.Module, output: Tensor) -> Tensor:
    axis = output.dim() - 1 if isinstance(module, nn.Linear) else 1
    others = [d for d in range(output.dim()) if d != axis]
    return output.mean(others, dtype=torch.promote_types(output.dtype, torch.float32))


def _probe(model: nn.Module, call: Call) -> tuple[int, int]:
    """Two of the inputs say how many bytes the widest activation of one takes, and how many are needed."""
    widest, needed = 1, FEWEST

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest, needed
        if not isinstance(output, Tensor):
            return
        widest = max(widest, output.numel() * output.element_size() // 2)
        if isinstance(module, LAYERS) and isinstance(module.weight, Tensor) and output.dim() > 1:
            places = output[0].numel() // max(1, module.weight.shape[0])
            unknowns = module.weight[0].numel()
            unknowns = unknowns if unknowns <= FULL_SOLVE else module.weight.shape[1]
            needed = max(needed, -(-unknowns // max(1, min(places, MOST_PLACES))))

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        args, kwargs = part_of(call, slice(2))
        model(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the network cannot run on these inputs: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return widest, needed
