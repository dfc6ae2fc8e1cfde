"""`deeppruning train`: train a network and leave its weights, history and options in a folder."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
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
from deeppruning.options import MACHINE, OUTPUT
from deeppruning.runs.leftovers import remove_leftovers
from deeppruning.runs.lock import RunLock
from deeppruning.system.device import available_threads, choose_device
from deeppruning.system.files import plain_name
from deeppruning.training.checkpoint import BatchReport, EpochReport, read_history
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
@flag(
    "--json", "as_json", heading=OUTPUT, is_flag=True,
    help="Print each epoch, and at last the outcome, as a line of JSON.",
)  # fmt: skip
@config_option
def train(
    model: str, weights: Path | None, model_options: dict[str, Any], out: Path | None, device: str,
    threads: int | None, quiet: bool, as_json: bool = False, **settings: Any,
) -> None:  # fmt: skip
    """Train MODEL: a name (see `deeppruning models`) or your own network (file.py:factory).

    If timm or torchvision is installed, MODEL may also be timm:NAME or torchvision:NAME.

    Writes model.safetensors, history.json, train.toml and, after every epoch, checkpoint.safetensors.
    If training is stopped, the same command continues after the last complete epoch, with the same result.
    With --weights, training starts from the weights in this file.

    \b
    Example:
      deeppruning train resnet20 --data digits --epochs 15 --out runs/base
      deeppruning evaluate resnet20 --weights runs/base/model.safetensors --data digits
    """
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
        history = _train_in_folder(
            network, splits, config, folder, chosen_device, quiet or as_json, as_json=as_json
        )
        folder.write_history(history)
        save_model(folder.model, network, splits.train, spec=model, options=model_options)
    finally:
        lock.release()
    if as_json:
        error = history[-1].test_error if history else None
        click.echo(json.dumps({"event": "trained", "test_error": error, "weights": str(folder.model)}))
    else:
        click.echo(_training_outcome(history, folder))


def _train_in_folder(
    network: nn.Module,
    splits: DataSplits,
    config: TrainConfig,
    folder: TrainFolder,
    device: torch.device,
    quiet: bool,
    *,
    as_json: bool,
) -> list[EpochReport]:
    """Train the network, or continue its training, with a bar or a line per epoch."""
    history = read_history(folder.checkpoint)
    if history and not quiet:
        state = "is finished" if len(history) >= config.rounds else "continues"
        click.echo(f"{folder.path}: training {state} after epoch {len(history)} of {config.rounds}")
    reports = list(history)
    with TrainingProgress(config.rounds, len(history), quiet=quiet) as progress:

        def on_epoch(report: EpochReport) -> None:
            reports.append(report)
            folder.write_history(reports)
            progress.on_epoch(report)
            if as_json:
                click.echo(json.dumps({"event": "epoch", "epochs": config.epochs, **asdict(report)}))

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
            interrupted = f"stopped after epoch {len(reports)} of {config.rounds}"
    click.echo(f"{interrupted}; the same command continues from there ({folder.path})", err=True)
    raise click.exceptions.Exit(code)


def _training_outcome(history: list[EpochReport], folder: TrainFolder) -> str:
    """The test error of the trained network and its file, in words."""
    if not history or history[-1].test_error is None:
        return f"untrained network in {folder.model}"
    return f"test error {percent(history[-1].test_error)}, network in {folder.model}"


def epoch_line(report: EpochReport, epochs: int) -> str:
    """One epoch as one line.

    >>> epoch_line(EpochReport(1, 0.5, 0.2, 0.1, 0.1, 250.0, 4.0), 30)
    'epoch  1/30  train error 20.00 %  test error 10.00 %  loss 0.5000  lr 0.1  250 images/s  4.0 s'
    """
    errors = f"train error {percent(report.train_error)}"
    if report.test_error is not None:
        errors += f"  test error {percent(report.test_error)}"
    return (
        f"epoch {report.epoch:>{len(str(epochs))}}/{epochs}  {errors}  loss {report.train_loss:.4f}  "
        f"lr {report.lr:.3g}  {report.images_per_second:.0f} images/s  {report.seconds:.1f} s"
    )


class TrainingProgress:
    """A context manager; `fit` takes its methods as on_batch and on_epoch."""

    def __init__(self, epochs: int, done: int, *, quiet: bool) -> None:
        self._epochs = epochs
        self._quiet = quiet
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._total_known = False
        self._done = done
        console = Console()
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(), console=console,
            )  # fmt: skip
            self._task = self._bar.add_task("starting", total=None, state="")

    def __enter__(self) -> "TrainingProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def on_terminal(self) -> bool:
        """Whether there is a bar, which moves with every batch."""
        return self._bar is not None

    def on_batch(self, report: BatchReport) -> None:
        """Move the bar."""
        if self._bar is None:
            return
        if not self._total_known:
            self._total_known = True
            total = self._epochs * report.batches
            self._bar.reset(self._task, total=total, completed=self._done * report.batches)
        self._bar.update(
            self._task,
            completed=(report.epoch - 1) * report.batches + report.batch,
            description=f"epoch {report.epoch}/{self._epochs}",
            state=f"error {percent(report.train_error)}  lr {report.lr:.3g}  "
            f"{report.images_per_second:.0f} images/s",
        )

    def on_epoch(self, report: EpochReport) -> None:
        """Print the epoch's line."""
        if self._bar is not None:
            self._bar.console.print(epoch_line(report, self._epochs), highlight=False)
        elif not self._quiet:
            click.echo(epoch_line(report, self._epochs))
