"""What a thin network computes inside, beside its original: the channels that stay ought to be the same.

Outputs tell a network what to answer, activations how. They are compared near the end: at the input of the
last layer that reads activations of each of the last two sizes. More places cost more and help no further.

>>> original = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1))
>>> thin = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1))
>>> with torch.no_grad():
...     _ = original[0].weight.copy_(torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
...     _ = thin[0].weight.copy_(torch.tensor([[1.0, 0.0]]))
>>> inside = Inside(1.0, (LayerInput("1", 1, torch.tensor([1])),))
>>> with inside.watch(thin, original) as seen:  # what the second layer reads of the second unit
...     _ = thin(torch.eye(2)), original(torch.eye(2))
>>> round(seen.distance().item(), 3)  # 1, 0 instead of 2, 0
0.25
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.graph.calls import Call
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.training.evaluate import mode

PLACES = 2  # that are compared
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class LayerInput:
    """A layer whose input is compared: where its channels lie, and which of the original's stay."""

    layer: str
    axis: int
    kept: Tensor


@dataclass(frozen=True, eq=False)
class Inside:
    """Where a thin network and its original are compared, and how much a place counts beside the outputs."""

    weight: float
    places: tuple[LayerInput, ...]

    @classmethod
    def of(cls, thin: nn.Module, original: nn.Module, recipe: Recipe, call: Call, weight: float) -> Inside:
        """The places of a network that was cut by this recipe, found by running both on the same inputs."""
        layers = {name: axis for name, module in thin.named_modules() if (axis := _channel_axis(module))}
        seen = Seen(cls(weight, ()))
        with torch.no_grad(), _watched(thin, layers, seen.ours), _watched(original, layers, seen.theirs):
            for network in (thin, original):
                args, kwargs = call
                with mode(network, training=False):
                    network(*args, **kwargs)
        last: dict[tuple[int, ...], LayerInput] = {}
        for layer, ours in seen.ours.items():
            axis, theirs = layers[layer], seen.theirs.get(layer)
            if theirs is None or ours.dim() != theirs.dim() or ours.dim() < 2:
                continue
            kept = torch.as_tensor(recipe.kept_along(f"{layer}.weight", 1, theirs.shape[axis]))
            due = theirs.index_select(axis, kept.to(theirs.device))
            if due.shape == ours.shape:
                extents = ours.shape[2:] if axis == 1 else ours.shape[1:-1]
                last.pop(tuple(extents), None)  # in the order of execution
                last[tuple(extents)] = LayerInput(layer, axis, kept)
        return cls(weight, tuple(last.values())[-PLACES:])

    @contextmanager
    def watch(self, thin: nn.Module, original: nn.Module) -> Iterator[Seen]:
        """Keeps what both networks read at these places while they run inside the block."""
        seen, layers = Seen(self), [place.layer for place in self.places]
        with _watched(thin, layers, seen.ours), _watched(original, layers, seen.theirs):
            yield seen


@dataclass(frozen=True, eq=False)
class Seen:
    """What both networks read on one batch, by layer."""

    inside: Inside
    ours: dict[str, Tensor] = field(default_factory=dict)
    theirs: dict[str, Tensor] = field(default_factory=dict)

    def distance(self) -> Tensor:
        """Squared distances as shares of the original's squares, added up over the places."""
        distances = [self._distance_at(place) for place in self.inside.places]
        known = [distance for distance in distances if distance is not None]
        return self.inside.weight * torch.stack(known).sum() if known else torch.zeros(())

    def _distance_at(self, place: LayerInput) -> Tensor | None:
        """None where a network in training skips the layer, or reads another number of positions there."""
        ours, theirs = self.ours.get(place.layer), self.theirs.get(place.layer)
        if ours is None or theirs is None:
            return None
        due = theirs.detach().index_select(place.axis, place.kept.to(theirs.device)).float()
        if ours.shape != due.shape:
            return None
        return (ours.float() - due).square().mean() / due.square().mean().clamp_min(_TINY)


def _channel_axis(module: nn.Module) -> int:
    """The dimension of a layer's input that the second one of its weight reads; 0 if there is none."""
    if isinstance(module, nn.Linear):
        return -1
    plain = isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd) and module.groups == 1
    return 1 if plain else 0


@contextmanager
def _watched(network: nn.Module, layers: Iterable[str], read: dict[str, Tensor]) -> Iterator[None]:
    """Keep what these layers read, the last time they run."""

    def keep(layer: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            read.pop(layer, None)  # in the order of the last runs
            read[layer] = inputs[0]

    modules = dict(network.named_modules())
    handles = [
        modules[layer].register_forward_pre_hook(partial(keep, layer)) for layer in layers if layer in modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
