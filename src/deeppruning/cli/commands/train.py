"""`deeppruning train`: train a network and leave its weights, history and options in a folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn

from deeppruning.amounts import percent
from deeppruning.cli.main import exit_code
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.flags import (
    DEVICES,
    GroupedCommand,
    flag,
    given_options,
    option_flags,
    out_option,
    threads_option,
    weights_option,
)
from deeppruning.cli.options.inputs import DataOptions, build_model, data_options, model_option
from deeppruning.config import TrainConfig
from deeppruning.data.splits import DataSplits
from deeppruning.display.training import TrainingProgress
from deeppruning.options import MACHINE, OUTPUT
from deeppruning.runs.leftovers import remove_leftovers
from deeppruning.runs.lock import RunLock
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import available_threads, choose_device
from deeppruning.system.files import plain_name
from deeppruning.training.checkpoint import EpochReport, read_history
from deeppruning.training.folder import TrainFolder, save_model
from deeppruning.training.loop import fit


@click.command(cls=GroupedCommand)
@click.argument("model")
@weights_option
@model_option
@data_options
@option_flags(TrainConfig)
@out_option("Folder to write to. [runs/MODEL-DATA]")
@flag("--device", heading=MACHINE, default="auto", help=f"{DEVICES} [auto]")
@threads_option("all cores")
@flag("--quiet", heading=OUTPUT, is_flag=True, help="Print the final test error only.")
@config_option
def train(
    model: str, weights: Path | None, model_options: dict[str, Any], out: Path | None, device: str,
    threads: int | None, quiet: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train MODEL, a network from the zoo (see `deeppruning models`) or your own (file.py:factory).

    Writes model.safetensors, history.json, train.toml and, after every epoch, checkpoint.safetensors.
    If training was stopped, the same command continues after the last complete epoch, with the same result.
    With --weights, training starts from these.

    \b
    Example:
      deeppruning train resnet20 --data digits --epochs 15 --out runs/base
      deeppruning evaluate resnet20 --weights runs/base/model.safetensors --data digits
    """
    keep_freed_memory()
    chosen_device = choose_device(device)
    torch.set_num_threads(threads or min(torch.get_num_threads(), available_threads()))
    config, data = TrainConfig(**given_options(TrainConfig, settings)), DataOptions.given(settings)
    splits, _ = data.load_for(weights)
    config = config.fitted(splits.train.image_shape)
    # The global generator draws the initial weights only; the loop has generators of its own.
    torch.manual_seed(config.seed)
    network = build_model(model, splits.train, weights, model_options)
    options: dict[str, Any] = {"model": model, **{f"model_option_{k}": v for k, v in model_options.items()}}
    options |= {"data": data.data, "image_shape": list(splits.train.image_shape)}
    options |= {"image_resize": data.image_resize} if data.image_resize is not None else {}
    options |= {"weights": str(weights)} if weights is not None else {}
    if splits.train.normalization is not None:
        options |= {key: list(values) for key, values in asdict(splits.train.normalization).items()}
    folder = TrainFolder(out or Path("runs") / plain_name(f"{model}-{data.data}"))
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
        state = "is finished" if len(history) >= config.epochs else "continues"
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
    click.echo(f"{interrupted}; the same command continues from there ({folder.path})", err=True)
    raise click.exceptions.Exit(code)


def _outcome(history: list[EpochReport], folder: TrainFolder) -> str:
    if not history or history[-1].test_error is None:
        return f"untrained network in {folder.model}"
    return f"test error {percent(history[-1].test_error)}, network in {folder.model}"
