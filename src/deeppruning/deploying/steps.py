"""The steps to a deployed network: which batch norms can be folded, what else can go, and how.

Each step changes a model in place, and is small enough to be undone alone.

>>> pair = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)).eval()
>>> FoldNorm("1", "0").apply(pair)
>>> len(pair)
1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.fusion import fuse_conv_bn_weights

from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.graph.trace.flow import Flow

LAYERS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    nn.Linear,
)


def find_norms(model: nn.Module, flow: Flow) -> tuple[dict[str, str], dict[str, str]]:
    """Batch norm -> the layer it can be folded into, and for all other norms the reason why not.

    A norm can be folded if it reads one layer only, and nothing else reads that layer.
    """
    layers: dict[str, nn.Module] = {
        name: module for name, module in model.named_modules() if isinstance(module, LAYERS)
    }
    owners = {operation: name for name in layers for operation in flow.once(name) or ()}
    folds: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, norm in model.named_modules():
        if not isinstance(norm, _BatchNorm):
            continue
        span = flow.once(name) or ()
        sources = {owners.get(source, "") for source in flow.read_by(span)} if span else set()
        layer = sources.pop() if len(sources) == 1 else ""  # empty if it reads anything else as well
        if reason := _why_norm_unfoldable(name, norm, flow) or _why_layer_takes_no_norm(
            layer, layers, flow, set(span)
        ):
            kept[name] = reason
        else:
            folds[name] = layer
    return folds, kept


@torch.no_grad()
def fold(layer: Any, norm: _BatchNorm) -> None:
    """Change weights and bias of a layer so that it gives what the batch norm behind it gave."""
    weight = layer.weight.detach()
    channels_first = _output_channels_first(layer, weight.double())
    # Doubles: half precision would lose digits on the way.
    mean, variance, bias = (
        None if tensor is None else tensor.double()
        for tensor in (norm.running_mean, norm.running_var, layer.bias)
    )
    assert mean is not None
    assert variance is not None
    scaled, shifted = fuse_conv_bn_weights(
        channels_first, bias, mean, variance, norm.eps, norm.weight, norm.bias
    )
    trained = layer.weight.requires_grad
    folded = torch.empty_like(weight)  # the same memory format
    folded.copy_(_output_channels_first(layer, scaled.detach()))
    layer.weight = nn.Parameter(folded, requires_grad=trained)
    layer.bias = nn.Parameter(shifted.detach().to(weight.dtype), requires_grad=trained)


def _output_channels_first(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    """Turn the weight of a transposed convolution, (in, out of each group, ...), around; and back again."""
    if not isinstance(layer, _ConvTransposeNd):
        return weight
    groups = layer.groups
    parts = weight.view(groups, len(weight) // groups, *weight.shape[1:])
    return parts.transpose(1, 2).flatten(0, 1)


def _why_norm_unfoldable(name: str, norm: _BatchNorm, flow: Flow) -> str:
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch"
    if _has_hooks(norm):
        return "hooks are attached to it"
    calls = len(flow.calls.get(name, ()))
    if calls != 1:
        return f"it runs {calls} times" if calls else "it does not run"
    return "" if flow.once(name) else "it does nothing"


def _why_layer_takes_no_norm(layer: str, layers: dict[str, nn.Module], flow: Flow, norm: set[int]) -> str:
    if not layer:
        return "it does not read the output of one convolution or linear layer alone"
    module, span = layers[layer], flow.once(layer)
    assert span is not None
    if not flow.readers_of(span) <= norm or flow.returned & set(span):
        return f"others read {layer}, too"
    if _has_hooks(module) or hasattr(module, "parametrizations") or not _runs_torch_code(module):
        return f"{layer} computes its weights, or has a forward of its own"
    channels_second = len(module.kernel_size) + 2 if isinstance(module, _ConvNd) else 2
    if len(flow.shapes.get(layer, ())) != channels_second:
        return f"it normalises another dimension than the channels of {layer}"
    return ""


def _has_hooks(module: nn.Module) -> bool:
    """Whether hooks see the input or output; older ways to compute weights are hooks as well."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _runs_torch_code(module: nn.Module) -> bool:
    """Whether forward is torch's own; a subclass may add other things."""
    base = next(kind for kind in type(module).__mro__ if kind in LAYERS)
    methods = ("forward", "_conv_forward")
    return all(getattr(type(module), name, None) is getattr(base, name, None) for name in methods)


@dataclass(frozen=True)
class FoldNorm:
    """Folds a batch norm into the layer before it; submodules of the norm, such as activations, stay."""

    norm: str
    layer: str

    def apply(self, model: nn.Module) -> None:
        """Fold the norm, in place."""
        norm, layer = model.get_submodule(self.norm), model.get_submodule(self.layer)
        assert isinstance(norm, _BatchNorm)
        fold(layer, norm)
        rest = [child for child in norm.children() if not _is_no_op(child)]
        _replace_module(model, norm, nn.Sequential(*rest) if rest else None)


@dataclass(frozen=True)
class Remove:
    """Removes a module that does nothing in evaluation mode."""

    name: str

    def apply(self, model: nn.Module) -> None:
        """Remove the module, in place."""
        _replace_module(model, model.get_submodule(self.name), None)


@dataclass(frozen=True)
class Fix:
    """Replaces a stand-in by its constant output, which has this many dimensions."""

    name: str
    dimensions: int

    def apply(self, model: nn.Module) -> None:
        """Put the constant in place of the stand-in."""
        module = model.get_submodule(self.name)
        like = next((tensor for tensor in model.parameters() if tensor.is_floating_point()), torch.zeros(0))
        _replace_module(model, module, Fixed(_stand_in_constant(module, self.dimensions)).to(like))


Step = FoldNorm | Remove | Fix


class Fixed(nn.Module):
    """Returns the same tensor for any input."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, x: Tensor) -> Tensor:
        """The constant."""
        return self.value


def find_no_ops(model: nn.Module) -> list[Step]:
    """Removals of dropout, and of identities in a sequence; modules with hooks are left alone."""
    items = {id(item) for module in model.modules() if type(module) is nn.Sequential for item in module}
    return [
        Remove(name)
        for name, module in model.named_modules()
        if name
        and _is_no_op(module)
        and (id(module) in items or type(module) is not nn.Identity)
        and not (module._forward_hooks or module._forward_pre_hooks)
    ]


def find_answers(model: nn.Module, flow: Flow) -> list[Step]:
    """Stand-ins that answer a constant which nothing overwrites."""
    return _fix_steps(model, flow, Answer, lambda span: not flow.is_overwritten(span))


def find_unheard(model: nn.Module, flow: Flow) -> list[Step]:
    """Stand-ins without channels that no output depends on, now that answers ignore their input."""
    return _fix_steps(model, flow, Hollow, lambda span: not flow.needed & set(span))


def _fix_steps(
    model: nn.Module, flow: Flow, kind: type[nn.Module], can_go: Callable[[range], bool]
) -> list[Step]:
    return [
        Fix(name, len(flow.shapes[name]))
        for name, module in model.named_modules()
        if isinstance(module, kind) and (span := flow.once(name)) is not None and can_go(span)
    ]


def _stand_in_constant(module: nn.Module, dimensions: int) -> Tensor:
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


def _replace_module(model: nn.Module, old: nn.Module, new: nn.Module | None) -> None:
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


def _is_no_op(module: nn.Module) -> bool:
    return isinstance(module, _DropoutNd) or type(module) is nn.Identity
