"""What Torch-Pruning makes of a network: a uniform cut by half, compared with the silenced full network."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from coverage_networks import CLASSES, Network
from coverage_trial import Row, multiply_adds, short, trains
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

TOLERANCE = 1e-8  # relative, in double precision
Convolution = nn.modules.conv._ConvNd
Place = tuple[str, str | int]  # a module and its side, or a loose parameter and its dimension
Kept = dict[Place, Tensor]  # the positions that stay


def torch_pruning(network: Network) -> Row:
    """Cut half of every group by magnitude, called as its manual shows for a CNN, without hints."""
    import torch_pruning as tp

    model = network.make()
    full = copy.deepcopy(model)
    filters = {m: m.out_channels for m in model.modules() if isinstance(m, Convolution)}
    start = time.process_time()
    row: Row = {"outcome": "build fails"}
    try:
        pruner = tp.pruner.MagnitudePruner(
            model,
            network.example(),
            importance=tp.importance.MagnitudeImportance(p=2),
            pruning_ratio=0.5,
            ignored_layers=[m for m in model.modules() if _is_classifier(m)],
        )
        row["outcome"] = "cut fails"
        kept = _cut_and_note(pruner, model)
        row["seconds"] = time.process_time() - start
        touched = sum(width for m, width in filters.items() if m.out_channels < width)
        row["reach"] = touched / sum(filters.values())
        row["outcome"] = "forward fails"
        images = network.example().double()
        with torch.no_grad():
            found = model.double().eval()(images)
    except Exception as error:
        row["error"] = short(error)
        return row
    if not kept:
        row["outcome"] = "removes nothing"
        return row
    silence(full.double(), kept)
    with torch.no_grad():
        row["difference"] = _difference(found, full(images))
    row["outcome"] = "ok" if row["difference"] <= TOLERANCE else "differs"
    row["flops_at_half"] = multiply_adds(model.float(), network) / multiply_adds(network.make(), network)
    row["trains"] = trains(model, network)
    return row


def _is_classifier(module: nn.Module) -> bool:
    width = getattr(module, "out_features", getattr(module, "out_channels", None))
    return isinstance(module, (nn.Linear, nn.Conv2d)) and width == CLASSES


def _cut_and_note(pruner: Any, model: nn.Module) -> Kept:
    """Cut, and return which outputs and inputs of each module stay, likewise for loose parameters."""
    names = {module: name for name, module in model.named_modules()}
    kept: Kept = {}
    graph = pruner.DG
    for group in pruner.step(interactive=True):
        for dependency, positions in group:
            target = dependency.target.module
            if isinstance(target, nn.Parameter):
                place: Place = (graph._param_to_name[target], dependency.target.pruning_dim)
                width = target.shape[dependency.target.pruning_dim]
            elif target in names and graph.is_out_channel_pruning_fn(dependency.handler):
                place, width = (names[target], "output"), graph.get_out_channels(target)
            elif target in names:
                place, width = (names[target], "input"), graph.get_in_channels(target)
            else:
                continue
            before = kept.get(place, torch.arange(width))
            stays = torch.ones(len(before), dtype=torch.bool)
            numbers = [int(getattr(position, "idx", position)) for position in positions]
            # A number beyond the width is passed over in silence by Torch-Pruning, so it is here.
            stays[[number for number in numbers if number < len(stays)]] = False
            kept[place] = before[stays]
        group.prune()
    return kept


def silence(model: nn.Module, kept: Kept) -> None:
    """Hold what was removed at zero, by hooks on modules and by zeros in loose parameters.

    Inputs too: an operation between two modules may turn a silent channel into a constant.
    """
    parameters = dict(model.named_parameters())
    modules = dict(model.named_modules())
    for (name, where), stays in kept.items():
        if isinstance(where, int):
            tensor = parameters[name].data
            tensor.copy_(_only(tensor, where, stays))
        elif where == "output":
            modules[name].register_forward_hook(_Silencer(stays))
        else:
            modules[name].register_forward_pre_hook(_silent_input(stays))


def _silent_input(stays: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        axis = inputs[0].ndim - 1 if isinstance(module, nn.Linear) else 1
        return (_only(inputs[0], axis, stays), *inputs[1:])

    return hook


class _Silencer:
    """A forward hook; norms across channels take their statistics from the channels that stay."""

    def __init__(self, stays: Tensor) -> None:
        self.stays = stays

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, Tensor):
            return output
        last = isinstance(module, (nn.Linear, nn.LayerNorm)) and not type(module).__name__.endswith("2d")
        axis = output.ndim - 1 if last else 1
        if isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
            weight = module.weight[self.stays] if module.weight is not None else None
            bias = module.bias[self.stays] if module.bias is not None else None
            narrow = inputs[0].index_select(axis, self.stays)
            if isinstance(module, nn.GroupNorm):
                normal = F.group_norm(narrow, module.num_groups, weight, bias, module.eps)
            else:
                moved = F.layer_norm(narrow.movedim(axis, -1), weight.shape, weight, bias, module.eps)
                normal = moved.movedim(-1, axis)
            return torch.zeros_like(output).index_copy(axis, self.stays, normal)
        return _only(output, axis, self.stays)


def _only(tensor: Tensor, axis: int, stays: Tensor) -> Tensor:
    return torch.zeros_like(tensor).index_copy(axis, stays, tensor.index_select(axis, stays))


def _difference(found: Any, expected: Any) -> float:
    worst = 0.0
    for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        if left.shape != right.shape:
            return float("inf")
        worst = max(worst, float((left - right).abs().max() / right.abs().max().clamp_min(1e-12)))
    return worst
