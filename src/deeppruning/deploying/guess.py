"""An input made up for a network that came without one, by what its first layer takes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from deeppruning.errors import InputError
from deeppruning.graph.cut.duplicate import unrun
from deeppruning.graph.proof.twin import seeded
from deeppruning.models.registry import architecture_of
from deeppruning.system.device import precision_of

SIDES = (32, 64, 224, 28, 8, 299)  # of images, the usual ones first


def guess_input(model: nn.Module) -> Tensor:
    """A batch that the network takes: that of its architecture, or of its first layer in the usual sizes."""
    for shape in _shapes(model):
        try:
            example = _zeros(model, shape)
            with seeded():
                unrun(model, training=False)(example)
        except Exception:  # any code may run in a forward
            continue
        return example
    raise InputError(
        f"what {type(model).__name__} takes could not be found out; give an input: "
        "dp.deploy(model, example_input)"
    )


def _shapes(model: nn.Module) -> list[tuple[int, ...]]:
    known = architecture_of(model)
    if known is not None and "image_size" in known and "in_channels" in known:
        return [(1, known["in_channels"], known["image_size"], known["image_size"])]
    first = next((each for each in model.modules() if isinstance(each, (_ConvNd, nn.Linear))), None)
    if isinstance(first, nn.Linear):
        return [(1, first.in_features)]
    if first is None:
        return []
    weight = first.weight
    width = weight.shape[0] if isinstance(first, _ConvTransposeNd) else weight.shape[1] * first.groups
    return [(1, width, *[side] * (weight.dim() - 2)) for side in SIDES]


def _zeros(model: nn.Module, shape: tuple[int, ...]) -> Tensor:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.zeros(shape, dtype=precision_of(model), device=device)
