"""Batch norms that can be folded: each reads one layer alone, and nobody else reads that layer."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from deeppruning.deploying.reading import SeenRun

LAYERS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    nn.Linear,
)


def find_norms(model: nn.Module, reading: SeenRun) -> tuple[dict[str, str], dict[str, str]]:
    """Batch norm -> the layer it can be folded into, and of all others -> why not."""
    layers: dict[str, nn.Module] = {
        name: module for name, module in model.named_modules() if isinstance(module, LAYERS)
    }
    owners = {operation: name for name in layers for operation in reading.once(name) or ()}
    folds: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, norm in model.named_modules():
        if isinstance(norm, _BatchNorm):
            reason = _unfit(norm) or _unread(name, reading)
            layer = "" if reason else _layer_read(name, reading, owners)
            reason = reason or _unsuited(layer, layers, reading, name)
            if reason:
                kept[name] = reason
            else:
                folds[name] = layer
    return folds, kept


def _unfit(norm: _BatchNorm) -> str:
    """Why a norm cannot be worked out beforehand, whatever it reads."""
    if norm.training or norm.running_mean is None:
        return "it uses the statistics of each batch"
    return "hooks are attached to it" if _is_watched(norm) else ""


def _unread(name: str, reading: SeenRun) -> str:
    calls = len(reading.flow.calls.get(name, ()))
    if calls != 1:
        return f"it runs {calls} times" if calls else "it does not run"
    return "" if reading.once(name) else "it does nothing"


def _layer_read(name: str, reading: SeenRun, owners: dict[int, str]) -> str:
    """The layer that a norm reads, if that is all it reads."""
    span = reading.once(name)
    assert span is not None
    read = {owners.get(source, "") for source in reading.read_by(span)}
    return read.pop() if len(read) == 1 else ""


def _unsuited(layer: str, layers: dict[str, nn.Module], reading: SeenRun, norm: str) -> str:
    """Why the layer that a norm reads cannot take it in."""
    if not layer:
        return "it does not read the output of one convolution or linear layer alone"
    module = layers[layer]
    span, own = reading.once(layer), reading.once(norm)
    assert span is not None
    assert own is not None
    if not reading.readers_of(span) <= set(own) or reading.handed_back & set(span):
        return f"others read {layer}, too"
    if _is_watched(module) or hasattr(module, "parametrizations") or not _is_plain(module):
        return f"{layer} computes its weights, or has a forward of its own"
    channels_second = len(module.kernel_size) + 2 if isinstance(module, _ConvNd) else 2
    if len(reading.shapes.get(layer, ())) != channels_second:
        return f"it normalises another dimension than the channels of {layer}"
    return ""


def _is_watched(module: nn.Module) -> bool:
    """Whether hooks see what goes in or comes out; old ways to compute weights are hooks as well."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_plain(module: nn.Module) -> bool:
    """Whether torch's own code runs, also in a class that only adds to it."""
    base = next(kind for kind in type(module).__mro__ if kind in LAYERS)
    ways = ("forward", "_conv_forward")
    return all(getattr(type(module), way, None) is getattr(base, way, None) for way in ways)
