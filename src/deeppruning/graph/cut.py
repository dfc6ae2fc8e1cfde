"""Cutting: a thin copy of a network, its parameters sliced as a recipe says."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from deeppruning.graph.duplicate import duplicate
from deeppruning.graph.recipe import Recipe
from deeppruning.graph.reindex import Reindexed

CONVOLUTIONS = (nn.modules.conv._ConvNd,)


def cut(model: nn.Module, recipe: Recipe) -> nn.Module:
    """A new module with the same forward code and parameter names, and only the channels that stay.

    Parameters are sliced first and handed to the copy as already copied, so that the full weights
    are never duplicated.
    """
    keeps = [torch.from_numpy(np.asarray(kept)) for kept in recipe.kept]
    whole = [len(kept) == width for kept, width in zip(keeps, recipe.widths, strict=True)]
    memo: dict[int, Any] = {}
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            memo[id(tensor)] = _slice(tensor, recipe.parameters.get(name, ()), keeps, whole)
    thin = duplicate(model, memo)
    modules = dict(thin.named_modules())
    for name in _modules_to_refresh(recipe):
        if name in modules:
            refresh_sizes(modules[name], name, recipe, keeps)
    for name, (axis_in, axis_out) in recipe.detached.items():
        _wrap(thin, name, recipe, keeps, axis_in, axis_out)
    return thin


def _slice(
    tensor: Tensor, cuts: tuple[tuple[int, int], ...], keeps: list[Tensor], whole: list[bool]
) -> Tensor:
    sliced = tensor.detach()
    cuts = tuple(place for place in cuts if not whole[place[1]])
    for dimension, axis in cuts:
        sliced = sliced.index_select(dimension, keeps[axis].to(sliced.device))
    if not cuts:
        sliced = sliced.clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(sliced, requires_grad=tensor.requires_grad)
    return sliced


def _modules_to_refresh(recipe: Recipe) -> set[str]:
    names = [
        *recipe.parameters,
        *(alias for alias, name in recipe.aliases.items() if name in recipe.parameters),
    ]
    return {name.rpartition(".")[0] for name in names} | set(recipe.norms)


def refresh_sizes(module: nn.Module, name: str, recipe: Recipe, keeps: list[Tensor]) -> None:
    """Bring the sizes a standard layer holds as attributes in line with its sliced weights."""
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
    weight_name = f"{name}.weight"
    per_group = recipe.grouped.get(recipe.aliases.get(weight_name, weight_name))
    widths = {dimension: len(keeps[axis]) for dimension, axis in recipe.norms.get(name, ())}
    if isinstance(module, CONVOLUTIONS):
        if per_group is not None:
            module.groups = shape[0] // per_group
        rows, columns = shape[0], shape[1] * module.groups
        module.out_channels, module.in_channels = (columns, rows) if module.transposed else (rows, columns)
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = shape
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        mean = module.running_mean
        module.num_features = shape[0] if shape else len(mean) if mean is not None else widths[0]
    elif isinstance(module, nn.GroupNorm):
        module.num_channels = shape[0] if shape else widths[0]
        if per_group is not None:
            module.num_groups = module.num_channels // per_group
    elif isinstance(module, nn.LayerNorm):
        sizes = list(module.normalized_shape)
        for dimension, width in widths.items():
            sizes[dimension] = width
        module.normalized_shape = tuple(sizes)
    elif isinstance(module, nn.PReLU):
        module.num_parameters = shape[0]


def _wrap(
    thin: nn.Module, name: str, recipe: Recipe, keeps: list[Tensor], axis_in: int | None, axis_out: int
) -> None:
    parent_name, _, child = name.rpartition(".")
    parent = thin.get_submodule(parent_name)
    inner = getattr(parent, child)
    kept_out = keeps[axis_out]
    device = next((tensor.device for tensor in thin.parameters()), torch.device("cpu"))
    if axis_in is None:
        width_in, kept_in = 0, torch.arange(0)
    else:
        width_in, kept_in = recipe.widths[axis_in], keeps[axis_in]
    if isinstance(inner, Reindexed):  # a network that was thinned before: one wrapper is enough
        kept_before = np.flatnonzero(inner.spread.cpu().numpy() < inner.spread.max().item() + inner.full_in)
        kept_in = torch.from_numpy(kept_before)[kept_in]
        width_in, kept_out, inner = len(inner.spread), inner.pick.cpu()[kept_out], inner.inner
    wrapper = Reindexed(inner, kept_in, width_in, kept_out).to(device)
    wrapper.train(inner.training)
    setattr(parent, child, wrapper)
