"""Cutting: a thin copy of a network, with parameters sliced by a recipe."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.weight_norm import WeightNorm

from deeppruning.graph.cut.duplicate import duplicate, forget_runs
from deeppruning.graph.cut.heads import resize
from deeppruning.graph.cut.hollow import Answer, Hollow, Reindexed, answer_of, extents_of
from deeppruning.graph.cut.recipe import Cuts, Recipe
from deeppruning.graph.cut.unreached import guard

CONVOLUTIONS = (nn.modules.conv._ConvNd,)
COMPUTING_HOOKS = (WeightNorm, prune.BasePruningMethod)


def cut(model: nn.Module, recipe: Recipe) -> nn.Module:
    """A new module with the same forward code and parameter names, and only the channels that stay.

    Parameters are sliced first and passed to the copy as already copied, so that the full weights are never
    duplicated.
    """
    keeps = _Keeps(recipe)
    memo: dict[int, Any] = {}
    changed: dict[str, nn.Module] = {}
    with torch.no_grad():
        for name, module in model.named_modules():
            _slice_tensors(name, module, recipe, keeps, memo)
            if name in keeps.layers:
                changed[name] = module
    thin = duplicate(model, memo)
    for name, module in changed.items():
        twin = memo[id(module)]
        _recompute(twin)
        twin.__dict__.update(refreshed_sizes(twin, name, recipe, keeps))
    for name, sizes in recipe.sizes.items():
        resize(name, thin.get_submodule(name), recipe, sizes)
    for name, (strip_in, strip_out) in recipe.detached.items():
        _wrap(thin, name, recipe, keeps, strip_in, strip_out)
    forget_runs(thin)
    _replace_lost(thin, recipe)
    guard(thin, recipe.unreached)
    return thin


def _replace_lost(thin: nn.Module, recipe: Recipe) -> None:
    """Replace layers that have lost all their filters, or all their inputs."""
    stand_ins: dict[str, nn.Module] = {}
    for name, feeder in recipe.answers.items():
        module = thin.get_submodule(name)
        with torch.no_grad():
            value = answer_of(module, thin.get_submodule(feeder) if feeder else None)
        stand_ins[name] = Answer(value, extents_of(name, module), spread=name in recipe.spread)
    for name in recipe.hollow:
        stand_ins[name] = Hollow(extents_of(name, thin.get_submodule(name)))
    for name, module in stand_ins.items():
        parent, _, child = name.rpartition(".")
        module.training = thin.get_submodule(name).training
        setattr(thin.get_submodule(parent), child, module)


class _Keeps:
    """The positions of each strip that stay, as tensors on whatever device a parameter is on."""

    def __init__(self, recipe: Recipe) -> None:
        self.here = [torch.from_numpy(np.asarray(kept)) for kept in recipe.kept]
        self.counts = [len(kept) for kept in recipe.kept]
        self.whole = [count == width for count, width in zip(self.counts, recipe.widths, strict=True)]
        self.there: dict[tuple[int, torch.device], Tensor] = {}
        shared = (alias for alias, name in recipe.aliases.items() if name in recipe.parameters)
        named = {layer_of(name) for name in (*recipe.parameters, *shared)}
        self.layers = named | set(recipe.norms)

    def on(self, device: torch.device, strip: int) -> Tensor:
        """The positions of a strip that stay, on a device."""
        if device.type == "cpu":
            return self.here[strip]
        key = (strip, device)
        if key not in self.there:
            self.there[key] = self.here[strip].to(device)
        return self.there[key]


def _slice_tensors(name: str, module: nn.Module, recipe: Recipe, keeps: _Keeps, memo: dict[int, Any]) -> None:
    """Put thin copies of a module's own parameters and buffers into the memo."""
    prefix = f"{name}." if name else ""
    for key, parameter in module._parameters.items():
        if parameter is not None and id(parameter) not in memo:
            thin = _sliced(parameter, recipe.parameters.get(prefix + key, ()), keeps)
            memo[id(parameter)] = nn.Parameter(thin, requires_grad=parameter.requires_grad)
    for key, buffer in module._buffers.items():
        if buffer is not None and id(buffer) not in memo:
            memo[id(buffer)] = _sliced(buffer, recipe.parameters.get(prefix + key, ()), keeps)


def _sliced(tensor: Tensor, cuts: Cuts, keeps: _Keeps) -> Tensor:
    """A copy of a tensor with the positions that stay."""
    thin = tensor
    for dimension, strip in cuts:
        if not keeps.whole[strip]:
            thin = thin.index_select(dimension, keeps.on(tensor.device, strip))
    return tensor.detach().clone() if thin is tensor else thin


def layer_of(parameter: str) -> str:
    """The module a parameter or buffer belongs to; parametrised ones lie in modules inside their layer."""
    path = parameter.split(".")
    return ".".join(path[: path.index("parametrizations")] if "parametrizations" in path else path[:-1])


def _recompute(module: nn.Module) -> None:
    """Weights that hooks compute before each run are plain attributes: compute them anew."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, COMPUTING_HOOKS):
            with torch.no_grad():
                hook(module, ())


def refreshed_sizes(module: nn.Module, name: str, recipe: Recipe, keeps: _Keeps) -> dict[str, Any]:
    """The sizes that a standard layer stores as attributes, matching its sliced weights."""
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if weight is not None else ()
    weight_name = f"{name}.weight" if name else "weight"
    per_group = recipe.grouped.get(recipe.aliases.get(weight_name, weight_name))
    widths = {dimension: keeps.counts[strip] for dimension, strip in recipe.norms.get(name, ())}
    if isinstance(module, CONVOLUTIONS) and shape:
        groups = shape[0] // per_group if per_group is not None else module.groups
        inward, outward = shape[1] * groups, shape[0]
        if module.transposed:
            inward, outward = outward, inward
        return {"groups": groups, "in_channels": inward, "out_channels": outward}
    if isinstance(module, nn.Linear) and shape:
        return {"out_features": shape[0], "in_features": shape[1]}
    if isinstance(module, nn.modules.batchnorm._NormBase):
        mean = module.running_mean
        return {"num_features": shape[0] if shape else len(mean) if mean is not None else widths[0]}
    if isinstance(module, nn.GroupNorm):
        channels = shape[0] if shape else widths[0]
        groups = channels // per_group if per_group is not None else module.num_groups
        return {"num_channels": channels, "num_groups": groups}
    if isinstance(module, nn.LayerNorm):
        sizes = enumerate(module.normalized_shape)
        return {"normalized_shape": tuple(widths.get(dimension, size) for dimension, size in sizes)}
    return {"num_parameters": shape[0]} if isinstance(module, nn.PReLU) else {}


def _wrap(
    thin: nn.Module, name: str, recipe: Recipe, keeps: _Keeps, strip_in: int | None, strip_out: int
) -> None:
    """Put a module that only runs at full width behind `Reindexed`, in place."""
    parent_name, _, child = name.rpartition(".")
    parent = thin.get_submodule(parent_name)
    inner = getattr(parent, child)
    kept_out = keeps.here[strip_out]
    device = next((tensor.device for tensor in thin.parameters()), torch.device("cpu"))
    if strip_in is None:
        width_in, kept_in = 0, torch.arange(0)
    else:
        width_in, kept_in = recipe.widths[strip_in], keeps.here[strip_in]
    if isinstance(inner, Reindexed):  # a network that was thinned before: one wrapper is enough
        kept_before = np.flatnonzero(inner.spread.cpu().numpy() < inner.spread.max().item() + inner.full_in)
        kept_in = torch.from_numpy(kept_before)[kept_in]
        width_in, kept_out, inner = len(inner.spread), inner.pick.cpu()[kept_out], inner.inner
    wrapper = Reindexed(inner, kept_in, width_in, kept_out).to(device)
    wrapper.train(inner.training)
    setattr(parent, child, wrapper)
