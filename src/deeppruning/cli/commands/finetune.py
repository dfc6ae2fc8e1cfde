"""`deeppruning finetune`: fine-tune any candidate of a run, not only the three picks."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.flags import (
    IN_THE_RUN,
    GroupedCommand,
    flag,
    output_options,
    threads_option,
    weights_option,
)
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.run import Vouched, run_argument, trust_options
from deeppruning.cli.options.search import finetune_options, finetune_settings
from deeppruning.cli.running import resumable
from deeppruning.config import FinetuneConfig
from deeppruning.display.outcome import read_rows, untuned_notes, write_report_or_say
from deeppruning.display.picture import make_progress
from deeppruning.jobs.network_table import NetworkTable
from deeppruning.options import FINETUNING
from deeppruning.runs.folder import RunFolder
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import choose_device


@click.command(cls=GroupedCommand)
@run_argument
@flag(
    "--candidate", heading=FINETUNING, type=int, required=True, help="Id of the candidate, as in the report."
)
@finetune_options(of_run=True)
@threads_option(IN_THE_RUN)
@weights_option
@trust_options("model", "data", "objective")
@output_options(IN_THE_RUN)
def finetune(
    run: Path, candidate: int, threads: int | None, weights: Path | None, device: str | None, quiet: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Fine-tune one candidate of RUN on all training images and save it there as candidate-ID.safetensors.

    Options that are not given are those of the run. If it is stopped, the same command continues. At the end
    the run's report is rewritten to include this network.

    \b
    Example:
      deeppruning finetune runs/thin --candidate 17
      deeppruning finetune runs/thin --candidate 17 --epochs 100 --distill 0.5
    """
    keep_freed_memory()
    vouched = Vouched.take(settings)
    with RunFolder.open(run) as opened:  # raises before data is read if another process has it
        config = opened.config
    options = replace(FinetuneConfig.from_table(config["finetune"]), **finetune_settings(settings))
    choose_device(device or config["run"]["device"])
    progress = make_progress(quiet=quiet, as_json=as_json)
    with resumable(run, "the same command"):
        loaded = Inputs.from_run(opened, vouched, weights).load()
        with progress:
            solution = api_runs.finetune(
                run,
                loaded.network,
                loaded.splits.train,
                loaded.splits.test,
                candidate=candidate,
                finetune=options,
                threads=threads,
                device=device or "auto",
                objective=loaded.objective,
                observer=progress,
                progress=False,
                report=False,
            )
        rows = read_rows(run, (solution.role,))
        report = write_report_or_say(run, progress)
        told = f"\nreport: {report}" if report else ""
        table = [NetworkTable(rows).text(), *untuned_notes(run, (solution.role,))]
        text = "\n".join([*table, f"saved in {solution.path}{told}"])
        progress.finish([asdict(row) for row in rows], str(report) if report else None, text)
