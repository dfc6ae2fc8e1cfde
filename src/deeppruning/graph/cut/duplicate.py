"""A fast copy of a network: the result of `copy.deepcopy`, with a shortcut for ordinary modules.

>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
>>> twin = duplicate(net, {})
>>> twin is net, twin[0].weight is net[0].weight, list(twin.state_dict()) == list(net.state_dict())
(False, False, True)
"""

import copy
import types
from collections import OrderedDict
from functools import lru_cache
from typing import Any

import torch
from torch import nn

# Values that cannot change, or that deepcopy itself does not copy.
UNCHANGING = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type, type(Ellipsis), torch.dtype, torch.device}
    | {types.FunctionType, types.BuiltinFunctionType, torch.Size}
)
OWN_WAYS = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")


def duplicate(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A copy of a module tree; `memo` maps ids of objects to the copies to use for them, as in deepcopy.

    Torch's modules have about twenty attributes each, most of them empty dicts of hooks: deepcopy would take
    most of the time of a search, which cuts thousands of networks.
    """
    copied = memo.get(id(module))
    if isinstance(copied, nn.Module):
        return copied
    made: Any = type(module)
    if not _ordinary(made):
        return copy.deepcopy(module, memo)
    twin: nn.Module = made.__new__(made)
    memo[id(module)] = twin
    attributes = twin.__dict__
    for name, value in module.__dict__.items():
        kind = type(value)
        if kind in UNCHANGING:
            attributes[name] = value
        elif (kind is dict or kind is OrderedDict) and not value:
            attributes[name] = kind()
        else:
            attributes[name] = _copied(value, memo)
    return twin


def unrun(model: nn.Module, *, training: bool) -> nn.Module:
    """A copy to run once: it shares the parameters, but nothing that a run may change."""
    twin = duplicate(model, {id(parameter): parameter for parameter in model.parameters()})
    return twin.train(training)


def forget_runs(model: nn.Module) -> None:
    """Make a network drop what it caches in evaluation mode, in place; all modes stay as they are.

    Cached results (biases of attention, merged weights) have the wrong size or values after a cut. Networks
    with such caches drop them in `train`, where their weights may change.
    """
    modules = list(model.modules())
    if all(type(each).train is nn.Module.train and type(each).eval is nn.Module.eval for each in modules):
        return
    modes = [each.training for each in modules]
    model.train()
    if not modes[0]:
        model.eval()
    for each, training in zip(modules, modes, strict=True):
        each.training = training


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """The copy of one attribute, by way of `deepcopy` unless it is an ordinary container."""
    kind = type(value)
    if kind in UNCHANGING:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, nn.Module):
        return duplicate(value, memo)
    if kind is dict or kind is OrderedDict:
        twin = memo[id(value)] = kind()
        for key, item in value.items():
            twin[key if type(key) is str else _copied(key, memo)] = _copied(item, memo)
        return twin
    if isinstance(value, torch.Tensor) and not value.is_leaf:
        # Left by an earlier run, such as by hooks that compute weights: its history belongs to the original.
        memo[id(value)] = value.detach().clone()
        return memo[id(value)]
    if (kind is tuple or kind is set) and all(type(item) in UNCHANGING for item in value):
        return value if kind is tuple else set(value)
    return copy.deepcopy(value, memo)


@lru_cache(maxsize=1024)
def _ordinary(kind: type) -> bool:
    """Whether a class leaves copying to Python; torch's own methods only complete old files."""
    if any("__slots__" in base.__dict__ for base in kind.__mro__[:-1]):
        return False
    for name in OWN_WAYS:
        way = getattr(kind, name, None)
        own = way is not getattr(nn.Module, name, None)
        if own and not (
            name == "__setstate__" and str(getattr(way, "__module__", "")).startswith("torch.nn.")
        ):
            return False
    return True
