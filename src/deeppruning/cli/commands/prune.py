"""`deeppruning prune`: search for pruned versions of a network, select three, fine-tune them."""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.commands.train import train
from deeppruning.cli.options.backend import BackendChoice, backend_options
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.flags import GroupedCommand, flag, out_option, output_options, weights_option
from deeppruning.cli.options.inputs import DataOptions, Inputs, data_options, model_option
from deeppruning.cli.options.run import track_options
from deeppruning.cli.options.search import (
    finetune_config,
    finetune_options,
    search_config,
    search_options,
    target_option,
)
from deeppruning.cli.running import check_untrained, resumable, start
from deeppruning.config import TrainConfig
from deeppruning.display.picture import make_progress
from deeppruning.display.progress import SearchProgress
from deeppruning.importing.resolve import is_onnx
from deeppruning.limits import Limits
from deeppruning.options import TRAINING
from deeppruning.runs.folder import refuse_occupied
from deeppruning.system.commands import command
from deeppruning.system.files import plain_name
from deeppruning.tracking import Tracking
from deeppruning.training.folder import TrainFolder


@click.command(cls=GroupedCommand, brief=True)
@click.argument("model")
@weights_option
@model_option
@data_options
@out_option("Folder for the run. [runs/MODEL-DATA-pruned]")
@target_option()
@search_options
@finetune_options(of_run=False)
@flag(
    "--train-epochs",
    heading=TRAINING,
    type=int,
    help=f"Without --weights: number of epochs to train the network first. [{TrainConfig().epochs}]",
)
@backend_options()
@track_options()
@output_options("auto")
@config_option
@click.pass_context
def prune(
    context: click.Context, /, model: str, weights: Path | None, out: Path | None, train_epochs: int | None,
    device: str | None, quiet: bool, as_json: bool, target: Limits, track: tuple[str, ...], **settings: Any,
) -> None:  # fmt: skip
    """Search for pruned versions of MODEL: a name (see `deeppruning models`), file.py:factory or model.onnx.

    If timm or torchvision is installed, MODEL may also be timm:NAME or torchvision:NAME.

    Evaluates many candidates (ways to remove filters), selects three (heavy: most accurate, light: cheapest,
    knee: best trade-off), fine-tunes them and saves them with the history of the whole search. With --target,
    the search concentrates near the limits and also returns a network that meets them. The result does not
    depend on --workers or --backend. Without --weights, the network is trained first, in a folder next to the
    run. If the run is stopped, continue it with `deeppruning resume`.

    Defaults are in brackets; "paper:" is the value in the paper, and with --preset paper.

    \b
    Example:
      deeppruning train resnet20 --data digits --epochs 15 --out runs/base
      deeppruning prune resnet20 --weights runs/base/model.safetensors --data digits \\
        --offspring 8 --generations 4 --finetune-epochs 10 --out runs/mine
      deeppruning prune resnet56 --weights r56.th --data cifar10 --target flops=40%,error=+1%
      deeppruning prune resnet56 --weights r56.th --data cifar10 --backend ray --ray-address auto
      deeppruning prune resnet56 --weights r56.th --data cifar10 --track tensorboard
    """
    search, function = search_config(settings)
    finetune = finetune_config(settings, search.seed)
    chosen_device = device or "auto"
    tracking = Tracking(track)
    choice = BackendChoice.take(settings).or_as_in({})
    progress = make_progress(quiet=quiet, as_json=as_json)
    backend = choice.make(search.threads, chosen_device, progress.say)
    if search.idle():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in search.idle())
        progress.say(
            f"note: no effect with strategy {search.strategy} and evaluation {search.evaluation}: {flags} "
            "(--preset paper is the search that uses them)"
        )
    data, options = DataOptions.given(settings), settings["model_options"]
    if weights is None and is_onnx(model):
        weights = Path(model)  # it is trained already
    out = out or Path("runs") / plain_name(f"{model}-{data.data}-pruned")
    refuse_occupied(out)
    with resumable(out, command("resume", out)), backend:
        progress.state.workers = backend.room()
        if weights is None:
            progress.say("no --weights given, so there is no trained network yet")
            epochs = TrainConfig().epochs if train_epochs is None else train_epochs
            TrainConfig(epochs=epochs)
            untrained = Inputs(model, None, data, options, objective=function)
            check_untrained(untrained, search, finetune, backend, chosen_device, target)
            weights = train_first(
                context, out, progress, quiet=quiet, as_json=as_json, model=model, model_options=options,
                epochs=epochs, seed=search.seed, device=chosen_device, **asdict(data),
            )  # fmt: skip
        loaded = Inputs(model, weights, data, options, objective=function).load()
        if target.bounds_error:
            progress.say("a tenth of the training images is held out to check the error")
        start(
            out, loaded, search, finetune, progress, choice, backend,
            device=chosen_device, target=target, tracking=tracking,
        )  # fmt: skip


def train_first(
    context: click.Context, out: Path, progress: SearchProgress, *, quiet: bool, as_json: bool, **job: Any
) -> Path:
    """Train the network as `deeppruning train` would, and return its weights file."""
    folder = TrainFolder(out.with_name(f"{out.name}-base"))
    progress.say(f"training {job['model']} first: {job['epochs']} epochs, into {folder.path}")
    progress.tell("training", folder=str(folder.path), epochs=job["epochs"])
    with contextlib.ExitStack() as stack:
        if quiet or as_json:  # stdout is for the table or the events
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        context.invoke(train, out=folder.path, quiet=quiet, **job)
    progress.tell("trained", weights=str(folder.model))
    return folder.model
