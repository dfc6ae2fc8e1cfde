"""`deeppruning demo`: training, search and fine-tuning in a few minutes, on data inside the package."""

from dataclasses import asdict
from pathlib import Path

import click

from deeppruning.cli.commands.prune import train_first
from deeppruning.cli.options.backend import BackendChoice
from deeppruning.cli.options.inputs import DataOptions, Inputs
from deeppruning.cli.running import resumable, start
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.picture import make_progress
from deeppruning.system.commands import command

MODEL, DATA = "resnet20", "digits"
TRAIN_EPOCHS = 12
# Small enough for two cores and a few minutes; the same widths on every machine.
SEARCH = SearchConfig(offspring=12, generations=8, sample=600, round_to=8)
FINETUNE = FinetuneConfig(epochs=10)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    help="Folder for the run. [runs/demo]",
)
@click.option(
    "--workers", type=click.IntRange(min=1),
    help="Number of candidates evaluated at the same time. [number of cores]",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print the final table only.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as a line of JSON.")
@click.pass_context
def demo(context: click.Context, out: Path, workers: int | None, quiet: bool, as_json: bool) -> None:
    """Train a small network on handwritten digits, prune it and show the result, in a few minutes.

    Every demo gets a folder of its own: runs/demo, then runs/demo-2 and so on.

    \b
    Example:
      deeppruning demo
    """
    out = _free_demo_folder(out)
    data, choice = DataOptions(data=DATA), BackendChoice(workers=workers)
    progress = make_progress(quiet=quiet, as_json=as_json)
    backend = choice.make(SEARCH.threads, "auto", progress.say)
    progress.state.workers = backend.room()
    with resumable(out, command("resume", out)):
        # One thread, as in the search: the same numbers on every machine.
        weights = train_first(
            context, out, progress, quiet=quiet, as_json=as_json, model=MODEL, model_options={},
            epochs=TRAIN_EPOCHS, threads=1, **asdict(data),
        )  # fmt: skip
        loaded = Inputs(MODEL, weights, data).load()
        start(out, loaded, SEARCH, FINETUNE, progress, choice, backend)


def _free_demo_folder(out: Path) -> Path:
    """The folder, or its name with the first number that is free."""
    candidates = [out, *(out.with_name(f"{out.name}-{number}") for number in range(2, 1000))]
    return next(path for path in candidates if not path.exists())
