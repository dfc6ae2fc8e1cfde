"""The plan that leaves most to choose: pruning linear layers must not cost filters of convolutions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.graph.assemble import GraphOptions
from deeppruning.graph.build import Builder
from deeppruning.graph.proof.built import Built


def build_best(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: GraphOptions
) -> Built:
    """Build with the options given; without linear layers where they turn out to be in the way."""
    if not options.prune_linear:
        return Builder(model, args, kwargs, options).build()
    plain = Builder(model, args, kwargs, replace(options, prune_linear=False)).build()
    try:
        whole = Builder(model, args, kwargs, options).build()
    except GraphError as error:
        return _noted(plain, str(error))
    return prefer(plain, whole)


def prefer(plain: Built, whole: Built) -> Built:
    """The plan with linear layers, unless some convolution is free to lose fewer filters in it."""
    free = _free_filters(whole)
    lost = [layer for layer, count in _free_filters(plain).items() if free.get(layer, 0) < count]
    return _noted(plain, f"that would freeze filters of {', '.join(lost)}") if lost else whole


def _free_filters(built: Built) -> dict[str, int]:
    """Layer -> how many of its filters some gene decides about."""
    return {layer.name: int(np.sum(layer.genes >= 0)) for layer in built.plan.layers}


def _noted(plain: Built, reason: str) -> Built:
    return replace(plain, notes=[*plain.notes, f"linear layers are not pruned: {reason}"])
