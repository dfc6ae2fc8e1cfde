"""The weights of a layer as rows, one a filter, wherever the network keeps them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from deeppruning.graph.plan import LayerFilters


def filter_rows(modules: Mapping[str, nn.Module], layer: LayerFilters) -> Tensor | None:
    """One row a filter, in order; None where no module and no parameter holds the weights.

    The modules, by name, are those of the network whose layer it is, or of a copy in full width.
    """
    weight, dimension = _weight(modules, layer.weight), layer.dimension
    if weight is None:  # worked out of other parameters, as with weight norm
        weight = _weight(modules, f"{layer.name}.weight")
        dimension = int(getattr(modules.get(layer.name), "transposed", False))
    if weight is None or weight.ndim < 2:
        return None
    count = len(layer.genes) * layer.repeats
    if dimension == 0 and len(weight) == count:
        return weight.flatten(1)
    # Laid out as (inputs, filters of a group, ...), the inputs of one group after those of another.
    groups = weight.chunk(count // weight.shape[1])
    return torch.cat([group.transpose(0, 1) for group in groups]).flatten(1)


def _weight(modules: Mapping[str, nn.Module], name: str) -> Tensor | None:
    module, _, attribute = name.rpartition(".")
    found = getattr(modules.get(module), attribute, None) if attribute else None
    return found if isinstance(found, Tensor) else None
