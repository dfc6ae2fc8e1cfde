"""The model on the command line: its argument and options, and the network they make for a data set."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from torch import nn

from deeppruning.cli.options.headings import NETWORK, Command, under
from deeppruning.data.stream import Images
from deeppruning.errors import InputError
from deeppruning.models import resolve_model
from deeppruning.training.weights import load_weights

OptionValue = bool | int | float | str


def build_model(
    spec: str, data: Images, weights: Path | None = None, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """The network `spec` names, made for the classes and shape of these images, with the weights loaded."""
    channels, height, width = data.image_shape
    model = resolve_model(
        spec,
        num_classes=data.num_classes,
        in_channels=channels,
        image_size=min(height, width),
        **(options or {}),
    )
    note = load_weights(model, weights) if weights is not None else ""
    if note:
        click.echo(f"note: {note}", err=True)
    return model


def parse_model_options(pairs: tuple[str, ...]) -> dict[str, OptionValue]:
    """KEY=VALUE texts as a table, numbers and true/false as such.

    >>> parse_model_options(("shortcut=conv", "dropout=0.5", "wide=true"))
    {'shortcut': 'conv', 'dropout': 0.5, 'wide': True}
    """
    options: dict[str, OptionValue] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"--model-option takes KEY=VALUE, for example shortcut=conv, got {pair!r}")
        if key in options:
            raise InputError(f"--model-option {key} is given twice; leave one out")
        options[key] = _parse_value(value)
    return options


def model_argument(command: Command) -> Command:
    """Adds the argument MODEL, passed on as `model`."""
    return click.argument("model")(command)


def weights_option(command: Command) -> Command:
    """Adds --weights, passed on as `weights`: a path or None."""
    option = click.option(
        "--weights",
        type=click.Path(path_type=Path),
        help="Weights file: .safetensors, or what torch.save wrote (.pt, .pth, .th, .pth.tar).",
    )
    return under(NETWORK, option)(command)


def model_option(command: Command) -> Command:
    """Adds the repeatable --model-option, passed on as the table `model_options`."""
    option = click.option(
        "--model-option",
        "model_options",
        multiple=True,
        metavar="KEY=VALUE",
        callback=lambda context, parameter, pairs: parse_model_options(pairs),
        help="An option of the network, for example shortcut=conv; may be repeated.",
    )
    return under(NETWORK, option)(command)


def _parse_value(text: str) -> OptionValue:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
