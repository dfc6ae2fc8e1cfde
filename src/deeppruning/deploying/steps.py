"""The steps to a deployed network: each changes a model in place, and is small enough to be undone alone.

>>> pair = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
>>> FoldNorm("1", "0").apply(pair)
>>> len(pair)
1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from deeppruning.deploying.folding import fold
from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.graph.trace.flow import Flow


@dataclass(frozen=True)
class FoldNorm:
    """Folds a batch norm into the layer before it; submodules of the norm, such as activations, stay."""

    norm: str
    layer: str

    def apply(self, model: nn.Module) -> None:
        norm, layer = model.get_submodule(self.norm), model.get_submodule(self.layer)
        assert isinstance(norm, _BatchNorm)
        fold(layer, norm)
        rest = [child for child in norm.children() if not _does_nothing(child)]
        _replace(model, norm, nn.Sequential(*rest) if rest else None)


@dataclass(frozen=True)
class Remove:
    """Removes a module that does nothing in evaluation mode."""

    name: str

    def apply(self, model: nn.Module) -> None:
        _replace(model, model.get_submodule(self.name), None)


@dataclass(frozen=True)
class Fix:
    """Replaces a stand-in by its constant output, which has this many dimensions."""

    name: str
    dimensions: int

    def apply(self, model: nn.Module) -> None:
        module = model.get_submodule(self.name)
        like = next((tensor for tensor in model.parameters() if tensor.is_floating_point()), torch.zeros(0))
        _replace(model, module, Fixed(_constant(module, self.dimensions)).to(like))


Step = FoldNorm | Remove | Fix


class Fixed(nn.Module):
    """Returns the same tensor for any input."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, x: Tensor) -> Tensor:
        return self.value


def find_no_ops(model: nn.Module) -> list[Step]:
    """Removals of dropout, and of identities in a sequence; modules with hooks are left alone."""
    items = {id(item) for module in model.modules() if type(module) is nn.Sequential for item in module}
    return [
        Remove(name)
        for name, module in model.named_modules()
        if name
        and _does_nothing(module)
        and (id(module) in items or type(module) is not nn.Identity)
        and not (module._forward_hooks or module._forward_pre_hooks)
    ]


def find_answers(model: nn.Module, flow: Flow) -> list[Step]:
    """Stand-ins that answer a constant which nothing overwrites."""
    return _fixes(model, flow, Answer, lambda span: not flow.is_overwritten(span))


def find_unheard(model: nn.Module, flow: Flow) -> list[Step]:
    """Stand-ins without channels that no output depends on, now that answers ignore their input."""
    return _fixes(model, flow, Hollow, lambda span: not flow.needed & set(span))


def _fixes(
    model: nn.Module, flow: Flow, kind: type[nn.Module], can_go: Callable[[range], bool]
) -> list[Step]:
    return [
        Fix(name, len(flow.shapes[name]))
        for name, module in model.named_modules()
        if isinstance(module, kind) and (span := flow.once(name)) is not None and can_go(span)
    ]


def _constant(module: nn.Module, dimensions: int) -> Tensor:
    """The output of a stand-in, one value per channel: it is broadcast where it is used."""
    if isinstance(module, Answer):
        value = module.bias.detach().clone()
        if module.channels_last:
            return value
        behind = dimensions - 1 if not module.spread else dimensions - 2
        return value.reshape([len(value)] + [1] * behind)
    shape = [1] * dimensions
    shape[-1 if getattr(module, "channels_last", False) else min(1, dimensions - 1)] = 0
    like = next(module.parameters(), torch.zeros(0))
    return like.new_zeros(shape)


def _replace(model: nn.Module, old: nn.Module, new: nn.Module | None) -> None:
    """Put a module in place of another wherever it is held; None removes an item of a sequence.

    The names of other items stay as they are.
    """
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not old:
                continue
            if new is None and type(parent) is nn.Sequential:
                del parent._modules[name]
            else:
                parent._modules[name] = nn.Identity() if new is None else new


def _does_nothing(module: nn.Module) -> bool:
    return isinstance(module, _DropoutNd) or type(module) is nn.Identity
