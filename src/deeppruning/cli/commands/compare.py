"""`deeppruning compare`: ask other methods for networks of the same FLOPs and fine-tune all of them alike."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from deeppruning import api
from deeppruning.cli.options.backend import BackendChoice, backend_options, entered
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.data import LOADING, data_options
from deeppruning.cli.options.headings import COMPARING, OUTPUT, GroupedCommand, under
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.model import model_argument, model_option, weights_option
from deeppruning.cli.options.search import (
    finetune_config,
    finetune_options,
    finetune_settings,
    output_options,
    search_config,
    search_options,
)
from deeppruning.cli.running import resumable
from deeppruning.comparison import METHODS, USUAL, Comparison, choose_methods
from deeppruning.comparison.results import RivalEvent, method_line
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.lines import diverged_line
from deeppruning.errors import InputError
from deeppruning.reporting import write_report, write_rivals_plot
from deeppruning.runs.folder import RunFolder
from deeppruning.searching.events import EpochDone, FinetuneDiverged, Remark
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.commands import command


@click.command(cls=GroupedCommand)
@model_argument
@weights_option
@model_option
@data_options("digits")
@under(
    COMPARING,
    click.option(
        "--methods",
        default=",".join(USUAL),
        show_default=True,
        help=f"Names with commas between, or all: {', '.join(METHODS)}.",
    ),
    click.option(
        "--match",
        type=click.Path(path_type=Path),
        metavar="RUN",
        help="A run: its three picks take part, and their FLOPs are asked for. Its options hold for all.",
    ),
    click.option(
        "--shares", metavar="S,S,S", help="Without --match: shares of the FLOPs to ask for, as 0.8,0.5,0.3."
    ),
    click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Repetitions."),
    click.option(
        "--images",
        type=click.IntRange(min=1),
        help="Fine-tune on a class-balanced part of so many training images. [all]",
    ),
    click.option(
        "--test-images",
        type=click.IntRange(min=1),
        help="Measure errors on a class-balanced part of so many test images. [all]",
    ),
)
@under(
    OUTPUT,
    click.option("--out", type=click.Path(path_type=Path), help="Folder for the comparison. [RUN/compare]"),
)
@search_options
@finetune_options(prefix=True)
@backend_options()
@output_options
@config_option
def compare(
    model: str, weights: Path | None, methods: str, match: Path | None, shares: str | None, seeds: int,
    images: int | None, test_images: int | None, out: Path | None, device: str | None, quiet: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Compare with other ways to prune MODEL: same data, same FLOPs, same fine-tuning.

    A criterion such as l1 cuts the same share of every layer; l1+refit cuts the same filters and refits the
    others. guided is our search with other seeds, es-plus and es-comma are the paper's. Methods that search
    evaluate as many candidates as the run. If stopped, the same command goes on; methods and seeds can be
    added later.

    \b
    Example:
      deeppruning compare resnet20 --weights runs/base/model.safetensors --data digits \\
        --match runs/thin --methods l1,l1+refit,guided --seeds 2
      deeppruning compare resnet20 --weights runs/base/model.safetensors --data digits \\
        --shares 0.7,0.4 --methods l1,apoz --finetune-epochs 5 --out runs/compare
    """
    keep_freed_memory()
    if weights is None:
        raise InputError(
            "compare prunes a trained network: give its --weights "
            f"(`{command('train', model, '--data', settings['data'])}` makes them)"
        )
    folder = out or (match / "compare" if match else None)
    if folder is None:
        raise InputError("say where the comparison shall be kept: --out FOLDER, or --match RUN")
    search, finetune = _options(match, settings)
    given = {key: settings[key] for key in LOADING}
    choice = BackendChoice.take(settings).or_as_in({})
    progress = _Progress(quiet=quiet, as_json=as_json)
    choose_methods(methods)  # a misspelt name is an error before anything is loaded
    backend = choice.make(search.threads, device or "auto", progress.say)
    with resumable(folder, "the same command"), entered(choice, backend, search.threads) as workers:
        loaded = Inputs(model, weights, settings["data"], settings["model_options"], **given).load()
        progress.say(loaded.normalization_line)
        comparison = api.compare(
            loaded.network,
            loaded.splits.train,
            loaded.splits.test,
            methods=methods,
            match=match,
            shares=_shares(shares),
            seeds=seeds,
            images=images,
            test_images=test_images,
            run_dir=folder,
            search=None if match else search,
            finetune=finetune,
            workers=workers,
            device=device or "auto",
            backend=backend,
            candidate_timeout=choice.local_timeout(),
            observer=progress,
            progress=False,
        )
    plot = write_rivals_plot(folder)
    page = write_report(match) if match else None
    progress.finish(comparison, folder, [path for path in (plot, page) if path is not None])


def _options(match: Path | None, settings: dict[str, Any]) -> tuple[SearchConfig, FinetuneConfig]:
    """The search's options and those of fine-tuning: a run's, changed by what is given, or the given ones."""
    search, function = search_config(settings)
    if function is not None:
        raise InputError("a comparison is at equal FLOPs: it takes no --objective of your own")
    changes = finetune_settings(settings)
    if match is None:
        return search, finetune_config(settings, search.seed)
    if search != SearchConfig():
        raise InputError("with --match the options of the search are those of the run: leave them out")
    with RunFolder.open(match, read_only=True) as run:
        kept = FinetuneConfig.from_table(run.config["finetune"])
        return SearchConfig.from_table(run.config["search"]), replace(kept, **changes)


def _shares(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InputError(f"--shares takes numbers such as 0.8,0.5,0.3, got {text!r}") from error


class _Progress:
    """A line a method, or an object a line, or nothing; then the table."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet, self._as_json = quiet, as_json

    def say(self, text: str) -> None:
        if not self._quiet and not self._as_json:
            click.echo(text)

    def __call__(self, event: RivalEvent) -> None:
        if isinstance(event, EpochDone):
            return
        if isinstance(event, (FinetuneDiverged, Remark)):
            self.say(event.text if isinstance(event, Remark) else diverged_line(event))
            return
        if self._as_json:
            click.echo(json.dumps({"event": "method", **asdict(event)}))
        self.say(method_line(event))

    def finish(self, comparison: Comparison, folder: Path, files: list[Path]) -> None:
        if self._as_json:
            click.echo(json.dumps({"event": "finished", **comparison.to_table()}))
            return
        click.echo(str(comparison))
        for path in (folder / "results.json", *files):
            click.echo(f"written: {path}")
