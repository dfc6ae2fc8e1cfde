"""The steps to a deployed network, each small enough to be undone alone: a plan in names, and its doing.

>>> conv, norm = nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2).eval()
>>> twice = nn.Sequential(conv, norm)
>>> FoldNorm("1", "0").apply(twice)
>>> len(twice)
1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd

from deeppruning.deploying.stand_ins import fixed


@dataclass(frozen=True)
class FoldNorm:
    """A batch norm goes into the layer before it; of a norm with more in it, the rest stays."""

    norm: str
    layer: str

    def apply(self, model: nn.Module) -> None:
        """Do it, in place."""
        norm, layer = model.get_submodule(self.norm), model.get_submodule(self.layer)
        assert isinstance(norm, _BatchNorm)
        fold(layer, norm)
        rest = [child for child in norm.children() if not _does_nothing(child)]
        replace(model, norm, nn.Sequential(*rest) if rest else None)


@dataclass(frozen=True)
class Remove:
    """Something that does nothing in evaluation mode goes."""

    name: str

    def apply(self, model: nn.Module) -> None:
        """Do it, in place."""
        replace(model, model.get_submodule(self.name), None)


@dataclass(frozen=True)
class Fix:
    """A stand-in gives its answer without a look at its input."""

    name: str
    dimensions: int

    def apply(self, model: nn.Module) -> None:
        """Do it, in place."""
        module = model.get_submodule(self.name)
        like = next((tensor for tensor in model.parameters() if tensor.is_floating_point()), torch.zeros(0))
        replace(model, module, fixed(module, self.dimensions).to(like))


Step = FoldNorm | Remove | Fix


def find_no_ops(model: nn.Module) -> list[str]:
    """Dropout, and identities in a sequence, where they can go; what hooks look at is left alone."""
    items = {id(item) for module in model.modules() if type(module) is nn.Sequential for item in module}
    return [
        name
        for name, module in model.named_modules()
        if name
        and _does_nothing(module)
        and (id(module) in items or type(module) is not nn.Identity)
        and not (module._forward_hooks or module._forward_pre_hooks)
    ]


def replace(model: nn.Module, old: nn.Module, new: nn.Module | None) -> None:
    """Put a module in place of another wherever it is held; without one, an item of a sequence goes.

    Names stay as they are: the items behind it keep their own.
    """
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not old:
                continue
            if new is None and type(parent) is nn.Sequential:
                del parent._modules[name]
            else:
                parent._modules[name] = nn.Identity() if new is None else new


@torch.no_grad()
def fold(layer: Any, norm: _BatchNorm) -> None:
    """Weights and bias of a layer such that it gives what the batch norm behind it gave."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    weight: Tensor = layer.weight.detach()
    scale = 1 / (norm.running_var.double() + norm.eps).sqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = -norm.running_mean.double()
    if layer.bias is not None:
        shift = shift + layer.bias.double()
    bias = shift * scale
    if norm.bias is not None:
        bias = bias + norm.bias.double()
    if isinstance(layer, _ConvTransposeNd):  # (in, out of each group, ...)
        groups = layer.groups
        parts = weight.double().view(groups, -1, *weight.shape[1:])
        factors = scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))
        scaled = (parts * factors).flatten(0, 1)
    else:
        scaled = weight.double() * scale.view(-1, *[1] * (weight.dim() - 1))
    trained = layer.weight.requires_grad
    kept = torch.empty_like(weight).copy_(scaled)  # laid out in memory as it was
    layer.weight = nn.Parameter(kept, requires_grad=trained)
    layer.bias = nn.Parameter(bias.to(weight.dtype), requires_grad=trained)


def _does_nothing(module: nn.Module) -> bool:
    return isinstance(module, _DropoutNd) or type(module) is nn.Identity
