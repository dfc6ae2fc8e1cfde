"""`deeppruning resume`: go on with a run that was stopped, to the very result it would have had."""

from pathlib import Path
from typing import Any

import click
import torch

from deeppruning import api
from deeppruning.cli.options.backend import BackendChoice, backend_options, entered
from deeppruning.cli.options.headings import GroupedCommand
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.model import weights_option
from deeppruning.cli.options.search import output_options, run_argument
from deeppruning.cli.options.trust import Vouched, trust_options
from deeppruning.cli.running import resumable
from deeppruning.display.outcome import conclude, keep_latencies
from deeppruning.display.progress import make_progress
from deeppruning.roles import ROLES
from deeppruning.runs.facts import FINISHED, solution_fact
from deeppruning.runs.folder import HISTORY, RunFolder
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.commands import command


@click.command(cls=GroupedCommand)
@run_argument
@weights_option
@trust_options("model", "data", "objective")
@backend_options(resuming=True)
@output_options
def resume(
    run: Path, weights: Path | None, device: str | None, quiet: bool, as_json: bool, **settings: Any
) -> None:
    """Go on with RUN, the folder of a run that was stopped, to the very result it would have had.

    Network, data and all options are taken from the folder; it may go on in another place than it began.
    A finished run only shows its table again. Code that the folder names (a network, data or objective
    of your own) is run if you made the run on this machine; for others see --trust-run.

    \b
    Example:
      deeppruning resume runs/thin
      deeppruning resume runs/thin --backend local
    """
    keep_freed_memory()
    with RunFolder.open(run, read_only=True) as opened:
        config = opened.config
    progress = make_progress(quiet=quiet, as_json=as_json)
    vouched, given = Vouched.take(settings), BackendChoice.take(settings)
    choice = given.or_as_in(config["run"])
    if unsaid := [flag for flag in choice.addresses() if flag not in given.addresses()]:
        vouched.check(opened, *unsaid)
    if is_finished(run):
        progress.say(f"{run} is finished")
        conclude(run, progress)
        return
    RunFolder.open(run).close()  # a run that another process works on must be told before data is read
    threads = int(config["search"]["threads"])
    recorded = config["run"].get("workers")
    if given.workers is None and choice.workers not in (None, recorded):
        progress.say(
            f"the run was made with {recorded} workers; this machine has {choice.workers} cores, so that "
            "many are used (--workers for another number)"
        )
    backend = choice.make(threads, device or config["run"]["device"], progress.say)
    again = command("resume", run)
    with resumable(run, again), entered(choice, backend, threads) as progress.state.workers:
        loaded = Inputs.from_run(opened, vouched, weights).load()
        with progress:
            result = api.resume(
                run,
                loaded.network,
                loaded.splits.train,
                loaded.splits.test,
                workers=choice.local_workers(threads),
                device=device,
                backend=backend,
                candidate_timeout=choice.local_timeout(),
                objective=loaded.objective,
                observer=progress,
                progress=False,
                report=False,  # after the latencies
            )
        keep_latencies(result, loaded.network, torch.zeros(1, *loaded.splits.test.image_shape))
        conclude(run, progress)


def is_finished(run: Path) -> bool:
    """Whether a run has come to its end and its solutions are there."""
    if not (run / HISTORY).exists():
        return False
    with RunFolder.open(run, read_only=True) as opened:
        if not opened.history.get_fact(FINISHED):
            return False
        figures = {role: opened.history.get_fact(solution_fact(role)) or {} for role in ROLES}
        return all(opened.solution(role).exists() or figures[role].get("failure") for role in ROLES)
