"""The commands that make a run again, found from what the run wrote down; folders are left out."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import click

from deeppruning.cli.commands.finetune import finetune
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.train import train
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig, TrainConfig
from deeppruning.limits import Limits
from row_options import RowOptions, row_file

_TRAINED = "model.safetensors"  # the weights that `deeppruning train` writes
_AIMED = ("focus", "low", "high")  # set by a target


def command(*words: object) -> str:
    """A command as anyone would write it, whatever the program is called on this machine."""
    return shlex.join(["deeppruning", *map(str, words)])


def prune_command(config: Mapping[str, Any], row: str) -> str:
    """`deeppruning prune` by the row's file, and beside it by flags what the run had otherwise."""
    model, data, target = config["model"], config["data"], Limits.of(config.get("target"))
    start: list[object] = ["--config", row_file(row)]
    shown: list[object] = ["--config", f"experiments/{row}.toml"]
    base = RowOptions.read(*start) if row_file(row).is_file() else None
    if base is None or _is_another(base, config):
        paper = ["--preset", "paper"] if config["search"].get("strategy") == "paper" else []
        start = shown = [model.get("spec", "MODEL"), "--data", data.get("data", "DATA"), *paper]
        base = RowOptions.read(*start)
    words = [*shown, *_weights(model), *_other_data(base, config)]
    words += [] if target == base.target else ["--target", str(target).replace(", ", ",")]
    unaimed = {key: value for key, value in config["search"].items() if not (target and key in _AIMED)}
    words += _flags(prune, unaimed, {"sample": USUAL_SAMPLE, **base.search.to_table()})
    trained = {key: value for key, value in config["finetune"].items() if key != "seed"}
    words += _flags(prune, trained, base.finetune.to_table(), "finetune_")
    return command("prune", *words, "--out", f"runs/{row}")


def finetune_command(config: Mapping[str, Any], row: str, id_: int, by: Mapping[str, Any]) -> str:
    """`deeppruning finetune` of one candidate, by flags what differs from the run's own options."""
    own = FinetuneConfig.from_table(config["finetune"]).to_table()
    usual = {**own, "threads": SearchConfig.from_table(config["search"]).threads}
    return command("finetune", f"runs/{row}", "--candidate", id_, *_flags(finetune, by, usual, "finetune_"))


def train_command(options: Mapping[str, Any], row: str) -> str:
    """`deeppruning train` by the options that a training wrote down."""
    channels, height, width = options["image_shape"]
    usual = TrainConfig().fitted((channels, height, width)).to_table()
    words = [options["model"], "--data", options["data"], *_weights(options)]
    words += ["--image-size", f"{height}x{width}"]
    for name, value in options.items():
        if name.startswith("model_option_"):
            words += ["--model-option", f"{name.removeprefix('model_option_')}={value}"]
    given = {key: value for key, value in options.items() if key in usual}
    return command("train", *words, *_flags(train, given, usual), "--out", f"runs/{row}")


def _is_another(base: RowOptions, config: Mapping[str, Any]) -> bool:
    """Whether flags cannot turn the row into this run."""
    named = (config["model"].get("spec"), config["data"].get("data"))
    return named != (base.model, base.data) or bool(base.target) > bool(Limits.of(config.get("target")))


def _weights(table: Mapping[str, Any]) -> list[object]:
    """--weights with a file: that of a training as it lies in runs, any other one by its name.

    >>> _weights({"weights": "/home/me/all/net-16/model.safetensors"}), _weights({"weights": "mine/r56.th"})
    (['--weights', 'runs/net-16/model.safetensors'], ['--weights', 'r56.th'])
    """
    if not table.get("weights"):
        return []
    path = PurePosixPath(table["weights"])
    trained = path.name == _TRAINED and path.parent.name
    return ["--weights", f"runs/{path.parent.name}/{path.name}" if trained else path.name]


def _other_data(base: RowOptions, config: Mapping[str, Any]) -> Iterator[object]:
    """Flags of the network and its data, where the row's are others."""
    for name, value in config["model"].get("options", {}).items():
        if base.model_options.get(name) != value:
            yield from ("--model-option", f"{name}={value}")
    for name in ("mean", "std"):
        value = config["data"].get(name)
        if value is not None and list(getattr(base, name) or ()) != list(value):
            yield from (f"--{name}", ",".join(map(str, value)))


def _flags(
    of: click.Command, values: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = ""
) -> list[object]:
    """The options of a command whose values are not the usual ones, as its flags.

    >>> _flags(prune, {"lr": 0.1, "flip": False, "epochs": 3}, {"epochs": 3, "flip": True}, "finetune_")
    ['--finetune-lr', 0.1, '--no-flip']
    """
    by_name = {parameter.name: parameter for parameter in of.params}
    words: list[object] = []
    for name, value in values.items():
        known = usual.get(name)
        if value == (list(known) if isinstance(known, tuple) else known):
            continue
        flag = by_name.get(prefix + name) or by_name[name]
        if isinstance(value, bool):
            words += flag.opts[:1] if value else flag.secondary_opts[:1]
        else:
            entries = value if isinstance(value, list) else [value]
            words += [word for entry in entries for word in (flag.opts[0], entry)]
    return words
