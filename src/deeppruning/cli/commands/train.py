"""`deeppruning train`: train a network and leave its weights, history and options in a folder."""

import re
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from deeppruning.cli.main import exit_code
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.data import data_options, load_from_options
from deeppruning.cli.options.headings import MACHINE, OUTPUT, TRAINING, GroupedCommand, under
from deeppruning.cli.options.model import build_model, model_argument, model_option, weights_option
from deeppruning.cli.options.normalization import with_right_normalization
from deeppruning.config import SCHEDULES, TrainConfig
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import Images
from deeppruning.display.training import TrainingProgress
from deeppruning.runs.leftovers import remove_leftovers
from deeppruning.runs.lock import RunLock
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import available_threads, choose_device
from deeppruning.training.checkpoint import EpochReport, read_history
from deeppruning.training.folder import TrainFolder, save_model
from deeppruning.training.loop import fit

_DEFAULTS = TrainConfig()


def _setting(name: str, kind: Any, help_text: str, flag: str | None = None) -> Callable[[Any], Any]:
    """An option for the field `name` of TrainConfig, left at None when not given."""
    default = getattr(_DEFAULTS, name)
    return click.option(
        flag or "--" + name.replace("_", "-"), name, type=kind, default=None, help=f"{help_text} [{default}]"
    )


def training_options(command: Any) -> Any:
    """One option for every field of TrainConfig."""
    options = [
        _setting("epochs", int, "Passes over the training images."),
        _setting("lr", float, "Learning rate (its peak)."),
        _setting("schedule", click.Choice(SCHEDULES), "How the rate changes."),
        _setting("batch_size", int, "Images a step."),
        _setting("momentum", float, "Momentum of SGD."),
        _setting("nesterov", bool, "Nesterov's form of momentum.", "--nesterov/--no-nesterov"),
        _setting("weight_decay", float, "Weight decay."),
        _setting("label_smoothing", float, "Share of the target spread over all classes."),
        click.option(
            "--crop", type=int, help="Border in pixels for random crops, 0 for none. [an eighth of the side]"
        ),
        click.option(
            "--flip/--no-flip",
            default=None,
            help="Mirror images at random. [colour images only: a mirrored digit or letter is another one]",
        ),
        _setting("cutout", int, "Side of the square blanked at random, 0 for none."),
        _setting("seed", int, "Seed of everything random."),
    ]
    return under(TRAINING, *options)(command)


@click.command(cls=GroupedCommand)
@model_argument
@weights_option
@model_option
@data_options("digits")
@training_options
@under(
    OUTPUT,
    click.option("--out", type=click.Path(path_type=Path), help="Folder to write to. [runs/MODEL-DATA]"),
)
@under(
    MACHINE,
    click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 or mps."),
    click.option("--threads", type=click.IntRange(min=1), help="Processor threads. [all cores]"),
)
@under(OUTPUT, click.option("--quiet", is_flag=True, help="Print the final test error only."))
@config_option
def train(
    model: str, weights: Path | None, model_options: dict[str, Any], data: str, data_dir: Path | None,
    download: bool, image_size: tuple[int, int] | None, image_resize: int | None, loading_workers: int | None,
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, out: Path | None, device: str,
    threads: int | None, quiet: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train MODEL, a network from the zoo (see `deeppruning models`) or your own (file.py:factory).

    Writes model.safetensors, history.json, train.toml and, after every epoch, checkpoint.safetensors.
    The same command again goes on after the last finished epoch, to the same weights. With --weights,
    training starts from these.

    \b
    Example:
      deeppruning train resnet20 --data digits --epochs 15 --out runs/base
      deeppruning evaluate resnet20 --weights runs/base/model.safetensors --data digits
    """
    keep_freed_memory()
    chosen_device = choose_device(device)
    torch.set_num_threads(threads or min(torch.get_num_threads(), available_threads()))
    splits = load_from_options(
        data, data_dir=data_dir, download=download, image_size=image_size, image_resize=image_resize,
        loading_workers=loading_workers, mean=mean, std=std,
    )  # fmt: skip
    splits, _ = with_right_normalization(splits, weights, given=mean is not None)
    config = _config(settings, splits.train)
    # The global generator draws the first weights, nothing else; the loop has generators of its own.
    torch.manual_seed(config.seed)
    network = build_model(model, splits.train, weights, model_options)
    options: dict[str, Any] = {"model": model, **{f"model_option_{k}": v for k, v in model_options.items()}}
    options |= {"data": data, "image_shape": list(splits.train.image_shape)}
    options |= {"image_resize": image_resize} if image_resize is not None else {}
    options |= {"weights": str(weights)} if weights is not None else {}
    if splits.train.normalization is not None:
        options |= {key: list(values) for key, values in asdict(splits.train.normalization).items()}
    folder = TrainFolder(out or Path("runs") / _plain(f"{model}-{data}"))
    folder.create()
    lock = RunLock(folder.path / "lock")
    try:
        remove_leftovers(folder.path)
        folder.claim(options | config.to_table())
        history = _run(network, splits, config, folder, chosen_device, quiet)
        folder.write_history(history)
        save_model(folder.model, network, splits.train, spec=model, options=model_options)
    finally:
        lock.release()
    click.echo(_outcome(history, folder))


def _config(settings: dict[str, Any], data: Images) -> TrainConfig:
    """The options given, with crop and flip fitted to the images where they were not."""
    given = {name: value for name, value in settings.items() if value is not None}
    assert set(settings) == {field.name for field in fields(TrainConfig)}
    return TrainConfig(**given).fitted(data.image_shape)


def _run(
    network: nn.Module,
    splits: DataSplits,
    config: TrainConfig,
    folder: TrainFolder,
    device: torch.device,
    quiet: bool,
) -> list[EpochReport]:
    history = read_history(folder.checkpoint)
    if history and not quiet:
        state = "is finished" if len(history) >= config.epochs else "goes on"
        click.echo(f"{folder.path}: training {state} after epoch {len(history)} of {config.epochs}")
    reports = list(history)
    with TrainingProgress(config.epochs, len(history), quiet=quiet) as progress:

        def on_epoch(report: EpochReport) -> None:
            reports.append(report)
            folder.write_history(reports)
            progress.on_epoch(report)

        try:
            return fit(
                network,
                splits.train,
                config,
                test=splits.test,
                device=device,
                checkpoint=folder.checkpoint,
                on_epoch=on_epoch,
                on_batch=progress.on_batch if progress.on_terminal else None,
            )
        except KeyboardInterrupt as stopped:
            code = exit_code(stopped)
            interrupted = f"stopped after epoch {len(reports)} of {config.epochs}"
    click.echo(f"{interrupted}; the same command goes on from there ({folder.path})", err=True)
    raise click.exceptions.Exit(code)


def _outcome(history: list[EpochReport], folder: TrainFolder) -> str:
    if not history or history[-1].test_error is None:
        return f"untrained network in {folder.model}"
    return f"test error {100 * history[-1].test_error:.2f} %, network in {folder.model}"


def _plain(text: str) -> str:
    """A folder's name made of a model's and a data set's, which may be paths.

    >>> _plain("resnet20-data/flowers:load")
    'resnet20-data-flowers-load'
    """
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")
