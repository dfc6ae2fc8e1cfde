"""Networks by what a user writes: an ONNX file, or whatever else names one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from deeppruning.errors import InputError
from deeppruning.importing.building import SUPPORTED
from deeppruning.importing.file import read_onnx
from deeppruning.importing.onnx import from_file
from deeppruning.models import resolve_model


def is_onnx(spec: object) -> bool:
    """Whether a user names an ONNX file."""
    return str(spec).lower().endswith(".onnx")


def resolve_network(
    spec: str, *, num_classes: int, in_channels: int, image_size: int, **options: Any
) -> nn.Module:
    """The network that `spec` names: model.onnx, or what `resolve_model` takes."""
    if not is_onnx(spec):
        return resolve_model(
            spec, num_classes=num_classes, in_channels=in_channels, image_size=image_size, **options
        )
    if options:
        raise InputError(f"{spec} takes no options, got {', '.join(options)}; leave them out")
    return classifier_of(Path(spec), num_classes, in_channels, image_size)


def classifier_of(path: Path, num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """An ONNX file as a classifier of such images; a file that is none is refused."""
    file = read_onnx(path, SUPPORTED)
    instead = f"; `deeppruning thin {path.name}` needs no labels and takes inputs of any form"
    shape = file.inputs[0].shape if len(file.inputs) == 1 else None
    if shape is None or len(shape) != 4:
        listed = ", ".join(f"{value.name} {list(value.shape or ())}" for value in file.inputs)
        raise InputError(f"{path} takes {listed}, not a batch of images{instead}")
    if isinstance(shape[1], int) and shape[1] != in_channels:
        behind = " (its channels come last)" if shape[3] == in_channels else ""
        raise InputError(
            f"{path} takes inputs of {_shown(shape)}{behind}, the data has images of {in_channels} channels"
            f"{instead}"
        )
    fixed = [size for size in shape[2:] if isinstance(size, int)]
    if fixed and min(fixed) != image_size:
        raise InputError(
            f"{path} takes images of {_shown(shape[2:])}, the data has {image_size}: give --image-size "
            f"{'x'.join(map(str, fixed))}"
        )
    sides = [size if isinstance(size, int) else image_size for size in shape[2:]]
    batch = shape[0] if isinstance(shape[0], int) else 2
    example = torch.rand(batch, in_channels, *sides, generator=torch.Generator().manual_seed(0))
    network = from_file(file, example)
    with torch.no_grad():
        outputs = network(example)
    if not isinstance(outputs, torch.Tensor) or outputs.dim() != 2 or outputs.shape[1] != num_classes:
        given = list(outputs.shape[1:]) if isinstance(outputs, torch.Tensor) else f"{len(outputs)} outputs"
        raise InputError(f"{path} gives {given} for an image, the data has {num_classes} classes{instead}")
    return network


def _shown(shape: tuple[int | str | None, ...]) -> str:
    """The shape of an ONNX input in words."""
    return "x".join(str(size) if isinstance(size, int) else "any" for size in shape)
