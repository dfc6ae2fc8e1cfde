"""What a run on two inputs shows before anything is recorded: readers, memory, the inputs needed."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd

from deeppruning.errors import InputError
from deeppruning.graph.calls import Call, part_of
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.refitting.memory import FULL_SOLVE, MOST_PLACES, MOST_UNKNOWNS, Density, LayerSize
from deeppruning.refitting.readers import LAYERS, ReaderRun, Readers
from deeppruning.system.device import FEWEST_AT_ONCE
from deeppruning.system.live_memory import LiveMemory

FEWEST = 16  # inputs below which nothing can be said about a layer
PART = 2**27  # bytes of the widest activation of one part of the batch; fits into caches, more or less
ROOM_FOR_FEWEST = 2**31  # bytes of all activations of the fewest inputs that run fast together


@dataclass(frozen=True)
class Probe:
    """What a run on two inputs shows."""

    readers: Readers
    widest: int  # bytes of the widest activation of one input
    waiting: int  # bytes of one input that waits at a layer for the others: what this or later ones read
    working: int  # bytes of one input that runs, at the worst moment
    needed: int  # inputs that would give every layer an equation for each of its unknowns
    keeps_state: bool  # whether modules keep values between calls: parts would read each other's
    layers: tuple[LayerSize, ...]  # that can be solved

    def memory(self, count: int, density: Density) -> int:
        """Bytes that a refit takes at most, beside its inputs; more of these never take less."""
        recorded = sum(layer.recorded(count, density) for layer in self.layers)
        solved = max((layer.solved(count, density) for layer in self.layers), default=0)
        return self.waiting * count + self.working * min(count, self._at_once(count)) + recorded + solved

    def parts(self, count: int) -> int:
        """In how many parts so many inputs run."""
        return -(-count // self._at_once(count))

    def _at_once(self, count: int) -> int:
        """How many inputs of so many run at once, at most."""
        if self.keeps_state:
            return count
        fewest = FEWEST_AT_ONCE if FEWEST_AT_ONCE * self.working <= ROOM_FOR_FEWEST else 1
        return max(PART // self.widest, fewest)

    def room(self, memory: int, most: int, density: Density) -> int:
        """How many of `most` inputs a refit has room for."""
        return max(FEWEST, bisect_right(range(1, most + 1), memory, key=lambda n: self.memory(n, density)))


def probe(model: nn.Module, call: Call) -> Probe:
    """Run the original on two inputs: its readers, its memory and the inputs that a refit needs."""
    widest, needed = 1, FEWEST
    sizes: dict[str, LayerSize] = {}

    def look(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal widest, needed
        if not isinstance(output, Tensor):
            return
        widest = max(widest, output.nbytes // 2)
        size = _size_of_solvable(module, output)
        if size is not None:
            sizes[name] = size
            unknowns = size.unknowns if size.unknowns <= FULL_SOLVE else size.channels
            needed = max(needed, -(-unknowns // min(size.places, MOST_PLACES)))

    before = _module_state(model)
    handles = [module.register_forward_hook(partial(look, name)) for name, module in model.named_modules()]
    try:
        readers = ReaderRun(model).find(model, *part_of(call, slice(2)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the network cannot run on these inputs: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    keeps_state = _module_state(model) != before
    layers = tuple(
        replace(size, summed=name in readers.sums)
        for name, size in sizes.items()
        if readers.calls.get(name) == 1
    )
    return Probe(readers, widest, *_live_memory(model, call), needed, keeps_state, layers)


def _live_memory(model: nn.Module, call: Call) -> tuple[int, int]:
    """Bytes of one input where it waits for others, which is at layers and norms, and at the worst moment."""
    waiting = 0
    args, kwargs = part_of(call, slice(2))
    # Weights and inputs are there anyway: a view of one keeps all of it alive, however many inputs are given.
    live = LiveMemory([*model.parameters(), *model.buffers(), *tensors_in(call)])

    def wait(*_: Any) -> None:
        nonlocal waiting
        waiting = max(waiting, live.now() - live.held)

    places = [module for module in model.modules() if isinstance(module, (*LAYERS, _BatchNorm))]
    handles = [module.register_forward_pre_hook(wait) for module in places]
    try:
        with torch.no_grad(), live:
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return waiting // 2, (live.peak - live.held) // 2


def _size_of_solvable(module: nn.Module, output: Tensor) -> LayerSize | None:
    """The size of a layer that a refit may solve; None for other modules, and for layers left as cut."""
    if not isinstance(module, LAYERS) or isinstance(module, _ConvTransposeNd):
        return None
    weight = module.weight
    if not isinstance(weight, Tensor) or weight.shape[1] > MOST_UNKNOWNS or output.dim() < 2:
        return None
    filters, channels = weight.shape[:2]
    return LayerSize(
        unknowns=math.prod(weight.shape[1:]),
        channels=channels,
        groups=getattr(module, "groups", 1),
        filters=filters,
        places=max(1, math.prod(output.shape[1:]) // max(1, filters)),  # no operation of its own
        bytes=output.element_size(),
        summed=False,
    )


def _module_state(model: nn.Module) -> dict[tuple[int, str], Any]:
    """What modules hold beside parameters; buffers with the number of changes in place."""
    held: dict[tuple[int, str], Any] = {}
    for number, module in enumerate(model.modules()):
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        held |= {(number, name): id(value) for name, value in own.items()}
        held |= {(number, name): (id(b), b._version) for name, b in module._buffers.items() if b is not None}
    return held
