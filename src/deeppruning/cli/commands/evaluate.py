"""`deeppruning evaluate`: the test error of a network with its weights."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from deeppruning.amounts import listed, percent
from deeppruning.cli.options.flags import DEVICES, GroupedCommand, flag, threads_option, weights_option
from deeppruning.cli.options.inputs import (
    DataOptions,
    build_model,
    data_options,
    model_option,
    normalization_line,
)
from deeppruning.data.stream import Images
from deeppruning.errors import DAMAGE, InputError, WeightsError
from deeppruning.importing.resolve import is_onnx
from deeppruning.jobs.solution import load, read_image_shape, read_solution, rebuild
from deeppruning.models.registry import architecture_of, list_models
from deeppruning.options import MACHINE, NETWORK, OUTPUT
from deeppruning.system.device import available_threads, choose_device
from deeppruning.training.evaluate import evaluate as measure
from deeppruning.training.evaluate import guessing_note
from deeppruning.training.weights import is_thin


@click.command(cls=GroupedCommand)
@click.argument("model", required=False)
@weights_option
@flag("--model", "named_model", heading=NETWORK, metavar="SPEC", help="The same as MODEL.")
@model_option
@data_options
@flag("--batch-size", heading=MACHINE, type=click.IntRange(min=1), default=250, help="Batch size. [250]")
@flag("--device", heading=MACHINE, default="auto", help=f"{DEVICES} [auto]")
@threads_option("all cores")
@flag("--quiet", heading=OUTPUT, is_flag=True, help="Print the test error only.")
@flag("--json", "as_json", heading=OUTPUT, is_flag=True, help="Print JSON instead of text.")
def evaluate(
    model: str | None, weights: Path | None, named_model: str | None, model_options: dict[str, Any],
    batch_size: int, device: str, threads: int | None, quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Print error, loss and speed of MODEL on the test images.

    MODEL is a name (see `deeppruning models`), timm:NAME, torchvision:NAME, your own network
    (file.py:factory) or an ONNX file. If --weights is a network saved by a run, MODEL is needed only for
    your own class.

    Images are normalised by --mean and --std, if given; otherwise as recorded in the weights file; otherwise
    with the usual values of the data set. The output says which.

    \b
    Example:
      deeppruning evaluate resnet20 --weights runs/base/model.safetensors --data digits
      deeppruning evaluate --weights runs/mine/knee.safetensors --data digits
    """
    if model is not None and named_model not in (None, model):
        raise InputError(f"MODEL is {model!r} and --model {named_model!r}; leave one out")
    spec = model or named_model
    thin = weights if weights is not None and is_thin(weights) else None
    if spec is None and thin is None:
        raise InputError("give the network: MODEL, or --weights with a network saved by a run")
    torch.set_num_threads(threads or min(torch.get_num_threads(), available_threads()))
    if spec is not None and is_onnx(spec) and weights is None:
        weights = Path(spec)
    splits, source = DataOptions.given(settings).load_for(weights)
    network = (
        _build_thin(thin, splits.test, spec, model_options)
        if thin is not None
        else build_model(str(spec), splits.test, weights, model_options)
    )
    result = measure(network, splits.test, batch_size=batch_size, device=choose_device(device))
    note = guessing_note(result.error, splits.test.labels, "test images")
    used = splits.test.normalization
    if as_json:
        described = {"source": source, **(asdict(used) if used is not None else {})}
        warning = {"warning": note} if note else {}
        click.echo(json.dumps({**asdict(result), "normalization": described, **warning}, indent=2))
        return
    if quiet:
        click.echo(f"test error {percent(result.error)}")
        return
    if weights is None:
        click.echo("no --weights given: this is the untrained network", err=True)
    click.echo(normalization_line(source, used))
    click.echo(
        f"test error {percent(result.error)}  loss {result.loss:.4f}  "
        f"{result.images_per_second:.0f} images/s  ({result.count} images)"
    )
    if note:
        click.echo(note, err=True)


def _build_thin(path: Path, data: Images, spec: str | None, options: Mapping[str, Any]) -> nn.Module:
    """The pruned network in a file; `spec` names the original's class, which is not needed for the zoo's."""
    metadata, _ = read_solution(path)
    _check_data(path, metadata, data)
    return load(path, _original_to_load_into(path, metadata, data, spec, options))


def _original_to_load_into(
    path: Path, metadata: Mapping[str, str], data: Images, spec: str | None, options: Mapping[str, Any]
) -> nn.Module:
    """An instance of the class that was pruned, with any weights."""
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
    """Refuse data of another kind than the network was pruned for: its outputs would be meaningless."""
    if "classes" not in metadata or "image_shape" not in metadata:
        return  # made with a task of the user's own
    shape = read_image_shape(path, metadata)
    if shape != data.image_shape:
        made_for, has = ("x".join(map(str, each)) for each in (shape, data.image_shape))
        raise WeightsError(
            f"{path} was made for images of {made_for}, the data has {has}; "
            "use the data it was made for, or resize the images with --image-size"
        )
    try:
        classes = tuple(map(str, json.loads(metadata["classes"])))
    except DAMAGE as error:
        raise WeightsError(f"{path} records classes that cannot be read ({error})") from error
    named = not all(name.isdigit() for name in (*classes, *data.classes))
    if len(classes) != data.num_classes or (named and classes != data.classes):
        raise WeightsError(
            f"{path} was made for {len(classes)} classes ({listed(classes)}), the data has "
            f"{data.num_classes} ({listed(data.classes)}); use the data it was made for"
        )
