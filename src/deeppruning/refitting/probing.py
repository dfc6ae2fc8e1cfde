"""What a run on two inputs shows before anything is recorded: readers, memory, the inputs needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph.calls import Call, part_of
from deeppruning.refitting.readers import LAYERS, ReaderRun, Readers

FEWEST = 16  # inputs below which nothing can be said about a layer
MOST_PLACES = 64
FULL_SOLVE = 2304  # unknowns per filter above which channels are mixed instead
ALIVE = (
    2  # widest activations that an input needs while it waits: a layer's input, a shortcut, what is recorded
)


@dataclass(frozen=True)
class Probe:
    """What a run on two inputs shows."""

    readers: Readers
    widest: int  # bytes of the widest activation of one input
    needed: int  # inputs that would give every layer an equation for each of its unknowns
    keeps_state: bool  # whether modules keep values between calls: parts would read each other's


def probe(model: nn.Module, call: Call) -> Probe:
    """Run the original on two inputs: its readers, its widest output and the inputs that a refit needs."""
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

    before = _module_state(model)
    handles = [module.register_forward_hook(look) for module in model.modules()]
    try:
        readers = ReaderRun(model).find(model, *part_of(call, slice(2)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the network cannot run on these inputs: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return Probe(readers, widest, needed, keeps_state=_module_state(model) != before)


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


def _module_state(model: nn.Module) -> dict[tuple[int, str], Any]:
    """What modules hold beside parameters; buffers with the number of changes in place."""
    held: dict[tuple[int, str], Any] = {}
    for number, module in enumerate(model.modules()):
        own = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        held |= {(number, name): id(value) for name, value in own.items()}
        held |= {(number, name): (id(b), b._version) for name, b in module._buffers.items() if b is not None}
    return held
