"""What the original network answers to some inputs, at some places of each layer: recorded once a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.refitting.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.refitting.patches import Places, answers_at, patches_at

FEWEST = 16  # inputs below which nothing can be said about a layer
ROWS_AN_UNKNOWN = 6
FEWEST_PLACES, MOST_PLACES = 8, 64
FULL_SOLVE = 2304  # unknowns of a filter above which channels are mixed instead
MOST_UNKNOWNS = 8192  # channels above which a layer is left as cut
MEMORY = 2**30  # bytes that the widest activation of the batch may take


@dataclass
class LayerAnswers:
    """One convolution or linear layer: where it was looked at, what it answered and, if large, read."""

    places: Places
    answers: Tensor  # (inputs, places, filters)
    reads: Tensor | None  # (inputs, places, channels): at the middle of each patch
    normed: bool = False  # a batch norm follows at once and takes any offset away


@dataclass
class Reference:
    """The original on a batch of inputs; `refit` holds thin networks against it."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    layers: dict[str, LayerAnswers] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # layers that cannot be refitted, with the reason
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)  # mean, variance of their inputs
    means: dict[str, Tensor] = field(default_factory=dict)  # of what each layer or norm answers

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, *, seed: int = 0) -> Reference:
        """Run the original once on the inputs: a batch, a tuple of positional or a dict of named ones."""
        model = graph.prune(graph.full_genome()).eval()
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        call = onto(as_call(inputs), device)
        count = batch_size(call)
        if count < FEWEST:
            raise InputError(f"refit needs at least {FEWEST} inputs to learn from, got {count}; give more")
        with torch.no_grad():
            share = _affordable(model, call, count)
            reference = cls(model, *part_of(call, slice(share)))
            reference._record(torch.Generator().manual_seed(seed))
        return reference

    def _record(self, generator: torch.Generator) -> None:
        calls: dict[str, int] = {}
        last: dict[int, str] = {}  # output of a layer -> the layer, to see what follows at once
        kept: list[Tensor] = []

        def see(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            calls[name] = calls.get(name, 0) + 1
            if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
                return
            if isinstance(module, _BatchNorm):
                others = [d for d in range(inputs[0].dim()) if d != 1]
                variance, mean = torch.var_mean(inputs[0].double(), others, correction=0)
                self.norms[name] = (mean, variance)
                follows = last.get(id(inputs[0]))
                if follows in self.layers:
                    self.layers[follows].normed = True
            else:
                last[id(output)] = name
                kept.append(output)
                self._look(name, module, inputs[0], output, generator)
            axis = -1 if isinstance(module, nn.Linear) else 1
            others = [d for d in range(output.dim()) if d != axis % output.dim()]
            self.means[name] = output.mean(others)

        hooks = []
        for name, module in self.model.named_modules():
            if isinstance(module, (_ConvNd, nn.Linear, _BatchNorm)):
                hooks.append(module.register_forward_hook(lambda m, i, o, name=name: see(name, m, i, o)))
        try:
            self.model(*self.args, **self.kwargs)
        finally:
            for hook in hooks:
                hook.remove()
        for name, count in calls.items():
            if count > 1 and self.layers.pop(name, None) is not None:
                self.left[name] = f"it is called {count} times"

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
        self.layers[name] = LayerAnswers(places, answers_at(y, places, channels_last=linear), reads)


def _affordable(model: nn.Module, call: Call, count: int) -> int:
    """As many of the inputs as fit into memory, judged by the widest activation of two of them."""
    widest = 1

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest
        if isinstance(output, Tensor):
            widest = max(widest, output.numel() * output.element_size() // 2)

    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        args, kwargs = part_of(call, slice(2))
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return max(FEWEST, min(count, MEMORY // widest))
