"""`deeppruning pick`: choose the candidate of a finished run that meets limits, without searching again."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.flags import IN_THE_RUN, GroupedCommand, flag, output_options, weights_option
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.run import Vouched, run_argument, trust_options
from deeppruning.cli.options.search import target_option
from deeppruning.cli.running import resumable
from deeppruning.display.outcome import choice_notes, read_rows, untuned_notes, write_report_or_say
from deeppruning.display.picture import make_progress
from deeppruning.jobs.network_table import NetworkTable
from deeppruning.limits import Limits
from deeppruning.options import OUTPUT
from deeppruning.runs.folder import RunFolder
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.commands import command
from deeppruning.system.device import choose_device


@click.command(cls=GroupedCommand)
@run_argument
@target_option(required=True)
@flag("--replace", heading=OUTPUT, is_flag=True, help="Replace the run's last target instead of adding one.")
@weights_option
@trust_options("model", "data", "objective")
@output_options(IN_THE_RUN)
def pick(
    run: Path, target: Limits, replace: bool, weights: Path | None, device: str | None, quiet: bool,
    as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Choose the candidate of RUN that meets limits, fine-tune it as the run did and save it as a target.

    Of all candidates that the search evaluated, this is the most accurate one within the limits; if only the
    error is limited, the cheapest one. A limit on the error is checked on a tenth of the training images,
    which are then not trained on. If it is stopped, the same command continues. The first target of a run is
    saved as target.safetensors, the next one as target-2.safetensors.

    \b
    Example:
      deeppruning pick runs/thin --target flops=30%
      deeppruning pick runs/thin --target params=100k,latency=5ms --replace
    """
    keep_freed_memory()
    vouched = Vouched.take(settings)
    with RunFolder.open(run) as opened:  # raises before data is read if another process has it
        config = opened.config
    choose_device(device or config["run"]["device"])
    progress = make_progress(quiet=quiet, as_json=as_json)
    again = command("pick", run, "--target", str(target).replace(" ", ""), *(["--replace"] * replace))
    with resumable(run, again):
        loaded = Inputs.from_run(opened, vouched, weights).load()
        with progress:
            solution = api_runs.pick(
                run,
                loaded.network,
                loaded.splits.train,
                loaded.splits.test,
                target=target,
                replace=replace,
                device=device or "auto",
                objective=loaded.objective,
                observer=progress,
                progress=False,
                report=False,
            )
        rows = read_rows(run, (solution.role,))
        report = write_report_or_say(run, progress)
        told = [f"report: {report}"] if report else []
        table = [NetworkTable(rows).text(), *untuned_notes(run, (solution.role,)), *choice_notes(run)]
        text = [*table, f"saved in {solution.path}", *told]
        progress.finish([asdict(row) for row in rows], str(report) if report else None, "\n".join(text))
