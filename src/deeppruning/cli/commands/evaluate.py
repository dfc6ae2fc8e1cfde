"""`deeppruning evaluate`: the test error of a network with its weights."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch

from deeppruning.cli.options.data import data_options, load_from_options
from deeppruning.cli.options.headings import MACHINE, NETWORK, OUTPUT, GroupedCommand, under
from deeppruning.cli.options.model import build_model, model_option, weights_option
from deeppruning.cli.options.normalization import with_right_normalization
from deeppruning.cli.options.thin import build_thin
from deeppruning.errors import InputError
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import available_threads, choose_device
from deeppruning.training.evaluate import evaluate as measure
from deeppruning.training.evaluate import guessing_note
from deeppruning.training.weights import is_thin


@click.command(cls=GroupedCommand)
@click.argument("model", required=False)
@weights_option
@under(NETWORK, click.option("--model", "named_model", metavar="SPEC", help="The same as MODEL."))
@model_option
@data_options("digits")
@under(
    MACHINE,
    click.option(
        "--batch-size", type=click.IntRange(min=1), default=250, show_default=True, help="Images a pass."
    ),
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps."),
    click.option("--threads", type=click.IntRange(min=1), help="Processor threads. [all cores]"),
)
@under(OUTPUT, click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."))
def evaluate(
    model: str | None, weights: Path | None, named_model: str | None, model_options: dict[str, Any],
    data: str, data_dir: Path | None, download: bool, image_size: tuple[int, int] | None,
    image_resize: int | None, loading_workers: int | None, mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None, batch_size: int, device: str, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the test error, loss and speed of MODEL on the test images.

    Weights may be a solution of a run: then MODEL is needed only for a class of your own.

    Images are normalised by --mean and --std if given, else as the weights file records, else as is
    customary for the data set; the output says which.

    \b
    Example:
      deeppruning evaluate resnet20 --weights runs/base/model.safetensors --data digits
      deeppruning evaluate --weights runs/thin/knee.safetensors --data digits
    """
    keep_freed_memory()
    if model is not None and named_model not in (None, model):
        raise InputError(f"MODEL is {model!r} and --model {named_model!r}; leave one out")
    spec = model or named_model
    thin = weights if weights is not None and is_thin(weights) else None
    if spec is None and thin is None:
        raise InputError("say which network: MODEL, or --weights with a solution of a run, which records it")
    torch.set_num_threads(threads or min(torch.get_num_threads(), available_threads()))
    splits = load_from_options(
        data, data_dir=data_dir, download=download, image_size=image_size, image_resize=image_resize,
        loading_workers=loading_workers, mean=mean, std=std,
    )  # fmt: skip
    splits, source = with_right_normalization(splits, weights, given=mean is not None)
    network = (
        build_thin(thin, splits.test, spec, model_options)
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
    if weights is None:
        click.echo("no --weights given: this is the untrained network", err=True)
    values = f": mean {_numbers(used.mean)}, std {_numbers(used.std)}" if used is not None else ""
    click.echo(f"normalisation: {source}{values}")
    click.echo(
        f"test error {100 * result.error:.2f} %  loss {result.loss:.4f}  "
        f"{result.images_per_second:.0f} images/s  ({result.count} images)"
    )
    if note:
        click.echo(note, err=True)


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
