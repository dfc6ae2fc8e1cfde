"""Batch norms that can be folded into the layer before them, and how that is done."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.fusion import fuse_conv_bn_weights

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
        if reason := _why_unusable(name, norm, flow) or _why_layer_unsuited(layer, layers, flow, set(span)):
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


def _why_unusable(name: str, norm: _BatchNorm, flow: Flow) -> str:
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch"
    if _has_hooks(norm):
        return "hooks are attached to it"
    calls = len(flow.calls.get(name, ()))
    if calls != 1:
        return f"it runs {calls} times" if calls else "it does not run"
    return "" if flow.once(name) else "it does nothing"


def _why_layer_unsuited(layer: str, layers: dict[str, nn.Module], flow: Flow, norm: set[int]) -> str:
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
