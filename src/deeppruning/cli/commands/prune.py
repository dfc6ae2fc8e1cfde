"""`deeppruning prune`: search for thin versions of a network and fine-tune the three picks, in a folder."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.commands.train import train
from deeppruning.cli.options.backend import BackendChoice, backend_options, entered
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.data import LOADING, data_options
from deeppruning.cli.options.headings import OUTPUT, TRAINING, under
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.model import model_argument, model_option, weights_option
from deeppruning.cli.options.search import (
    finetune_config,
    finetune_options,
    output_options,
    search_config,
    search_options,
)
from deeppruning.cli.options.target import SuggestsTarget, target_option
from deeppruning.cli.running import check_untrained, resumable, start
from deeppruning.config import TrainConfig
from deeppruning.display.picture import make_progress
from deeppruning.display.progress import SearchProgress
from deeppruning.limits import Limits
from deeppruning.runs.folder import refuse_occupied
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.commands import command
from deeppruning.system.files import plain_name
from deeppruning.training.folder import TrainFolder

USUAL = (
    *(
        "--weights",
        "--data",
        "--data-dir",
        "--image-size",
        "--target",
        "--preset",
        "--offspring",
        "--generations",
    ),
    *("--objective", "--seed", "--sample", "--round-to", "--exclude", "--finetune-epochs", "--finetune-lr"),
    *("--workers", "--backend", "--device", "--out", "--quiet", "--config"),
)  # what --help shows; --help-all shows the rest


@click.command(cls=SuggestsTarget, usual=USUAL)
@model_argument
@weights_option
@model_option
@data_options("digits")
@under(
    OUTPUT,
    click.option(
        "--out", type=click.Path(path_type=Path), help="Folder for the run. [runs/MODEL-DATA-pruned]"
    ),
)
@target_option()
@search_options
@finetune_options(prefix=True)
@under(
    TRAINING,
    click.option(
        "--train-epochs",
        type=int,
        help=f"Without --weights: epochs the network is trained for first. [{TrainConfig().epochs}]",
    ),
)
@backend_options()
@output_options
@config_option
@click.pass_context
def prune(
    context: click.Context, /, model: str, weights: Path | None, out: Path | None, train_epochs: int | None,
    device: str | None, quiet: bool, as_json: bool, target: Limits, **settings: Any,
) -> None:  # fmt: skip
    """Search for thin versions of MODEL, a network from the zoo or your own (file.py:factory).

    Tries many ways to remove filters, picks three (heavy: most accurate, light: cheapest, knee: the best
    compromise), fine-tunes these and saves them beside the history of the whole search. With --target the
    search spends its effort near the limits, and the network that meets them is a fourth. The result does
    not depend on --workers or --backend. Stopped at any moment, the run goes on with `deeppruning resume`.
    Without --weights the network is trained first, into a folder beside the run's. The paper leaves open
    what is not marked as its value.

    \b
    Example:
      deeppruning train resnet20 --data digits --epochs 15 --out runs/base
      deeppruning prune resnet20 --weights runs/base/model.safetensors --data digits \\
        --offspring 8 --generations 4 --finetune-epochs 10 --out runs/thin
      deeppruning prune resnet56 --weights r56.th --data cifar10 --target flops=40%,error=+1%
      deeppruning prune resnet56 --weights r56.th --data cifar10 --backend ray --ray-address auto
    """
    keep_freed_memory()
    search, function = search_config(settings)
    finetune = finetune_config(settings, search.seed)
    chosen_device = device or "auto"
    choice = BackendChoice.take(settings).or_as_in({})
    progress = make_progress(quiet=quiet, as_json=as_json)
    backend = choice.make(search.threads, chosen_device, progress.say)
    if search.idle():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in search.idle())
        progress.say(
            f"note: no effect with strategy {search.strategy} and evaluation {search.evaluation}: {flags} "
            "(--preset paper is the search that has them)"
        )
    data, options = settings["data"], settings["model_options"]
    out = out or Path("runs") / plain_name(f"{model}-{data}-pruned")
    refuse_occupied(out)
    given = {key: settings[key] for key in LOADING}
    again = command("resume", out)
    with resumable(out, again), entered(choice, backend, search.threads) as progress.state.workers:
        if weights is None:
            progress.say("no --weights given, so there is no trained network yet")
            epochs = TrainConfig().epochs if train_epochs is None else train_epochs
            TrainConfig(epochs=epochs)
            untrained = Inputs(model, None, data, options, objective=function, **given)
            check_untrained(untrained, search, finetune, choice, backend, chosen_device, target)
            weights = train_first(
                context, out, progress, quiet=quiet, as_json=as_json, model=model, model_options=options,
                data=data, epochs=epochs, seed=search.seed, device=chosen_device, **given,
            )  # fmt: skip
        loaded = Inputs(model, weights, data, options, objective=function, **given).load()
        if target.bounds_error:
            progress.say("a tenth of the training images is set aside, and the error checked on it")
        run_table = {"device": chosen_device, **choice.table(search.threads)}
        start(out, loaded, search, finetune, progress, run_table, backend=backend, target=target)


def train_first(
    context: click.Context, out: Path, progress: SearchProgress, *, quiet: bool, as_json: bool, **job: Any
) -> Path:
    """Train the network that is to be pruned as `deeppruning train` would, and return its weights."""
    folder = TrainFolder(out.with_name(f"{out.name}-base"))
    progress.say(f"training {job['model']} first: {job['epochs']} epochs, into {folder.path}")
    progress.tell("training", folder=str(folder.path), epochs=job["epochs"])
    with contextlib.ExitStack() as stack:
        if quiet or as_json:  # the output belongs to the table or to the events
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        context.invoke(train, out=folder.path, quiet=quiet, **job)
    progress.tell("trained", weights=str(folder.model))
    return folder.model
