"""`deeppruning compare`: prune with other methods to the same FLOPs and fine-tune all networks alike."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from deeppruning import api
from deeppruning.cli.options.backend import BackendChoice, backend_options
from deeppruning.cli.options.config_file import config_option
from deeppruning.cli.options.flags import (
    NUMBERS,
    GroupedCommand,
    flag,
    out_option,
    output_options,
    weights_option,
)
from deeppruning.cli.options.inputs import DataOptions, Inputs, data_options, model_option
from deeppruning.cli.options.search import (
    finetune_config,
    finetune_options,
    finetune_settings,
    search_config,
    search_options,
)
from deeppruning.cli.running import resumable
from deeppruning.comparison import METHODS, USUAL, Comparison, MethodDone, choose_methods
from deeppruning.comparison.results import ComparisonEvent
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.lines import comparison_line
from deeppruning.errors import InputError
from deeppruning.options import COMPARING
from deeppruning.reporting import write_report, write_rivals_plot
from deeppruning.runs import RunFolder
from deeppruning.system.commands import command


@click.command(cls=GroupedCommand, brief=True)
@click.argument("model")
@weights_option
@model_option
@data_options
@flag(
    "--methods", heading=COMPARING, common=True, default=",".join(USUAL),
    help=f"Names of methods, separated by commas, or all: {', '.join(METHODS)}. [{','.join(USUAL)}]",
)  # fmt: skip
@flag(
    "--match", heading=COMPARING, common=True, type=click.Path(path_type=Path), metavar="RUN",
    help="Run to compare with: its networks take part, and the methods get their FLOPs and its options.",
)  # fmt: skip
@flag(
    "--shares", heading=COMPARING, common=True, type=NUMBERS, metavar="S,S,S",
    help="Without --match: fractions of the FLOPs to prune to, for example 0.8,0.5,0.3.",
)  # fmt: skip
@flag(
    "--seeds", heading=COMPARING, common=True, type=click.IntRange(min=1), default=1,
    help="Number of repetitions with different seeds. [1]",
)  # fmt: skip
@flag(
    "--images", heading=COMPARING, type=click.IntRange(min=1),
    help="Number of training images, balanced over the classes, for fine-tuning. [all]",
)  # fmt: skip
@flag(
    "--test-images", heading=COMPARING, type=click.IntRange(min=1),
    help="Number of test images, balanced over the classes. [all]",
)  # fmt: skip
@out_option("Folder for the comparison; required without --match. [the folder compare in the run of --match]")
@search_options
@finetune_options(of_run=False)
@backend_options()
@output_options("auto")
@config_option
def compare(
    model: str, weights: Path | None, methods: str, match: Path | None, shares: tuple[float, ...] | None,
    seeds: int, images: int | None, test_images: int | None, out: Path | None, device: str | None,
    quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Prune MODEL with other methods, for comparison: same data, same FLOPs, same fine-tuning.

    A criterion such as l1 prunes the same fraction of every layer; l1+refit removes the same filters and
    refits the remaining weights. guided is our search with other seeds, es-plus and es-comma are the paper's.
    Methods that search evaluate as many candidates as the run. If the command is stopped, run it again to
    continue; methods and seeds can be added later.

    \b
    Example:
      deeppruning compare resnet20 --weights runs/base/model.safetensors --data digits \\
        --match runs/mine --methods l1,l1+refit,guided --seeds 2
      deeppruning compare resnet20 --weights runs/base/model.safetensors --data digits \\
        --shares 0.7,0.4 --methods l1,apoz --finetune-epochs 5 --out runs/compare
    """
    data = DataOptions.given(settings)
    if weights is None:
        raise InputError(
            "compare prunes a trained network: give its --weights "
            f"(`{command('train', model, '--data', data.data)}` makes them)"
        )
    folder = out or (match / "compare" if match else None)
    if folder is None:
        raise InputError("give a folder for the comparison: --out FOLDER, or --match RUN")
    search, finetune = _options_of_comparison(match, settings)
    choice = BackendChoice.take(settings).or_as_in({})
    progress = _Progress(quiet=quiet, as_json=as_json)
    choose_methods(methods)  # a misspelt name is an error before anything is loaded
    backend = choice.make(search.threads, device or "auto", progress.say)
    with resumable(folder, "the same command"), backend:
        loaded = Inputs(model, weights, data, settings["model_options"]).load()
        progress.say(loaded.normalization_line)
        comparison = api.compare(
            *loaded.model_and_data,
            methods=methods,
            match=match,
            shares=shares or (),
            seeds=seeds,
            images=images,
            test_images=test_images,
            run_dir=folder,
            search=None if match else search,
            finetune=finetune,
            device=device or "auto",
            backend=backend,
            observer=progress,
            progress=False,
        )
    plot = write_rivals_plot(folder)
    page = write_report(match) if match else None
    progress.finish(comparison, folder, [path for path in (plot, page) if path is not None])


def _options_of_comparison(
    match: Path | None, settings: dict[str, Any]
) -> tuple[SearchConfig, FinetuneConfig]:
    """The options of the search and of fine-tuning: those given, on top of a run's if there is one."""
    search, function = search_config(settings)
    if function is not None:
        raise InputError("a comparison is at equal FLOPs: leave out --objective")
    changes = finetune_settings(settings)
    if match is None:
        return search, finetune_config(settings, search.seed)
    if search != SearchConfig():
        raise InputError("with --match the run's own search options are used: leave them out")
    with RunFolder.open(match, read_only=True) as run:
        recorded = FinetuneConfig.from_table(run.config["finetune"])
        return SearchConfig.from_table(run.config["search"]), recorded.changed_by(changes)


class _Progress:
    """A line per method, or a JSON object per line, or nothing; then the table."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet, self._as_json = quiet, as_json

    def say(self, text: str) -> None:
        """Print a line, or send it to the error stream beside JSON."""
        if text and not self._quiet and not self._as_json:
            click.echo(text)

    def __call__(self, event: ComparisonEvent) -> None:
        if self._as_json and isinstance(event, MethodDone):
            click.echo(json.dumps({"event": "method", **asdict(event)}))
        self.say(comparison_line(event))

    def finish(self, comparison: Comparison, folder: Path, files: list[Path]) -> None:
        """Print the table of the comparison and where its files are."""
        if self._as_json:
            click.echo(json.dumps({"event": "finished", **comparison.to_table()}))
            return
        click.echo(str(comparison))
        for path in (folder / "results.json", *files):
            click.echo(f"written: {path}")
