"""A saved solution named as --weights: the thin network in it, for data of the kind it was made for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from deeppruning.cli.options.model import build_model
from deeppruning.data.stream import Images
from deeppruning.errors import DAMAGE, WeightsError
from deeppruning.jobs.solution import load, read_image_shape, read_solution, rebuild
from deeppruning.models.registry import architecture_of, list_models


def build_thin(path: Path, data: Images, spec: str | None, options: Mapping[str, Any]) -> nn.Module:
    """The thin network of a solution; `spec` names the class it was pruned from, which the zoo's need not."""
    metadata, _ = read_solution(path)
    _check_data(path, metadata, data)
    return load(path, _original(path, metadata, data, spec, options))


def _original(
    path: Path, metadata: Mapping[str, str], data: Images, spec: str | None, options: Mapping[str, Any]
) -> nn.Module:
    """An instance of the class that the solution was pruned from; its weights do not matter."""
    if "architecture" in metadata:
        model = rebuild(path, metadata)
        name = (architecture_of(model) or {}).get("name")
        if spec in (None, name) and not options:
            return model
        if spec in list_models() and spec != name:
            raise WeightsError(
                f"{path} was pruned from {name}, not from {spec}: leave MODEL out or name {name}"
            )
    if spec is None:
        raise WeightsError(
            f"{path} was pruned from a network that is not in the zoo: name its class as MODEL, "
            "package.module:factory or file.py:factory"
        )
    return build_model(spec, data, None, options)


def _check_data(path: Path, metadata: Mapping[str, str], data: Images) -> None:
    """Refuse data of another kind than the network was pruned on: it would answer, and be wrong."""
    if "classes" not in metadata or "image_shape" not in metadata:
        return  # made with a task of the user's own
    shape = read_image_shape(path, metadata)
    if shape != data.image_shape:
        raise WeightsError(
            f"{path} was made for images of {_sides(shape)}, the data has {_sides(data.image_shape)}; "
            "give the data it was made for, or its size with --image-size"
        )
    try:
        classes = tuple(map(str, json.loads(metadata["classes"])))
    except DAMAGE as error:
        raise WeightsError(f"{path} records classes that cannot be read ({error})") from error
    named = not all(name.isdigit() for name in (*classes, *data.classes))
    if len(classes) != data.num_classes or (named and classes != data.classes):
        raise WeightsError(
            f"{path} tells {len(classes)} classes apart ({_few(classes)}), the data has {data.num_classes} "
            f"({_few(data.classes)}); give the data it was made for"
        )


def _sides(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
