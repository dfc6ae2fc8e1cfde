"""`deeppruning finetune`: fine-tune any candidate of a run, because a user is not limited to the three."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.headings import FINETUNING, MACHINE, GroupedCommand, under
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.model import weights_option
from deeppruning.cli.options.search import finetune_options, finetune_settings, output_options, run_argument
from deeppruning.cli.options.trust import Vouched, trust_options
from deeppruning.cli.running import resumable
from deeppruning.config import FinetuneConfig
from deeppruning.display.outcome import read_rows, untuned_notes, write_report_or_say
from deeppruning.display.progress import make_progress
from deeppruning.jobs.network_table import NetworkTable
from deeppruning.runs.folder import RunFolder
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import choose_device


@click.command(cls=GroupedCommand)
@run_argument
@under(
    FINETUNING,
    click.option("--candidate", type=int, required=True, help="The candidate's id, as in the report."),
)
@finetune_options(prefix=False)
@under(
    MACHINE,
    click.option("--threads", type=click.IntRange(min=1), help="Processor threads. [as in the run]"),
)
@weights_option
@trust_options("model", "data", "objective")
@output_options
def finetune(
    run: Path, candidate: int, threads: int | None, weights: Path | None, device: str | None, quiet: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Fine-tune one candidate of RUN on all training images and save it there as candidate-ID.safetensors.

    By the run's own options, except for those given. Stopped, the same command goes on. At the end the
    run's report is written anew, with this one on it.

    \b
    Example:
      deeppruning finetune runs/thin --candidate 17
      deeppruning finetune runs/thin --candidate 17 --epochs 100 --distill 0.5
    """
    keep_freed_memory()
    vouched = Vouched.take(settings)
    with RunFolder.open(run) as opened:  # locked for a moment: a run at work must be told before data is read
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
