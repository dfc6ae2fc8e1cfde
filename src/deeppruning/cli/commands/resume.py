"""`deeppruning resume`: continue a run that was stopped, to exactly the result it would have had."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.backend import BackendChoice, backend_options
from deeppruning.cli.options.flags import IN_THE_RUN, GroupedCommand, output_options, run_weights_option
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.run import Vouched, run_argument, track_options, trust_options
from deeppruning.cli.running import resumable, show_result
from deeppruning.display.outcome import conclude
from deeppruning.display.picture import make_progress
from deeppruning.display.progress import SearchProgress
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.identity import changed_options
from deeppruning.jobs.solution import read_solution
from deeppruning.roles import ROLES, TARGET, candidate_number
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder, is_begun
from deeppruning.system.commands import command
from deeppruning.tracking import Tracking


@click.command(cls=GroupedCommand)
@run_argument
@run_weights_option
@trust_options("model", "data", "objective")
@backend_options(of_run=True)
@track_options(of_run=True)
@output_options(IN_THE_RUN)
def resume(
    run: Path,
    weights: Path | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
    track: tuple[str, ...],
    no_track: bool,
    **settings: Any,
) -> None:
    """Continue RUN, the folder of a run that was stopped, to exactly the result it would have had.

    Network, data and all options are read from the folder, which may have been moved. If the run is finished,
    its table is printed again, and networks that are missing or damaged are restored. Code that the folder
    names (your own network, data or objective) is run if you made the run on this machine; otherwise see
    --trust-run.

    \b
    Example:
      deeppruning resume runs/mine
      deeppruning resume runs/mine --backend local
    """
    with RunFolder.open(run, read_only=True) as opened:
        config = opened.config
        finished = is_begun(run) and opened.history.get_fact(facts.FINISHED) is True
        lost = lost_solutions(opened) if finished else {}
        # A run that was stopped before it began has no record either.
        given_trackers = track or (() if no_track or not is_begun(run) else None)
        tracking = Tracking.of_run(opened, given_trackers)
    progress = make_progress(quiet=quiet, as_json=as_json)
    vouched, given = Vouched.take(settings), BackendChoice.take(settings)
    choice = given.or_as_in(config["run"])
    if unsaid := [flag for flag in choice.addresses() if flag not in given.addresses()]:
        vouched.check(opened, *unsaid)
    if finished:
        for reason in lost.values():
            click.echo(reason, err=True)
        remade = [role for role in lost if role in ROLES or (role == TARGET and "target" in config)]
        if not remade:
            progress.say(f"{run} is finished")
            _show_again(run, progress, lost)
            return
        progress.say(f"restored: {', '.join(remade)}")
    RunFolder.open(run).close()  # raises before data is read if another process has it
    threads = int(config["search"]["threads"])
    recorded = config["run"].get("workers")
    if given.workers is None and choice.workers not in (None, recorded):
        progress.say(
            f"the run had {recorded} workers; this machine has {choice.workers} cores, so {choice.workers} "
            "workers are used (--workers sets another number)"
        )
    backend = choice.make(threads, device or config["run"]["device"], progress.say)
    with resumable(run, command("resume", run)), backend:
        progress.state.workers = backend.room()
        loaded = Inputs.from_run(opened, vouched, weights).load()
        with progress:
            result = api_runs.resume(
                run,
                *loaded.model_and_data,
                device=device or "auto",
                backend=backend,
                objective=loaded.objective,
                observer=progress,
                progress=False,
                report=False,  # after the latencies
                track=tracking,
            )
        show_result(result, loaded, progress, tracking)


def _show_again(run: Path, progress: SearchProgress, lost: Mapping[str, str]) -> None:
    """Print the table of a finished run; networks that only `pick` or `finetune` can remake are an error."""
    with RunFolder.open(run, read_only=True) as opened:
        changed = changed_options(opened)
        targets = facts.targets_in(opened.history.facts())
    if changed:
        click.echo(f"{changed}; the results shown were made with the former", err=True)
    conclude(run, progress)
    ways = [
        command("pick", run, "--target", targets[role]["asked"].replace(" ", ""))
        if role in targets
        else command("finetune", run, "--candidate", candidate_number(role))
        for role in lost
    ]
    if ways:
        raise RunError(f"resume cannot restore {', '.join(lost)}; use `{'`, `'.join(ways)}`")


def lost_solutions(run: RunFolder) -> dict[str, str]:
    """The networks of a finished run that are missing, damaged or replaced, by role, with the reason."""
    lost = {}
    for role, figures in facts.solutions_in(run.history.facts()).items():
        if figures.get("failure"):
            continue
        path, expected = run.solution(role), {"role": role, "candidate": str(figures["id"])}
        try:
            metadata, _ = read_solution(path)
            if any(metadata.get(name, value) != value for name, value in expected.items()):
                lost[role] = f"{path} is not the network that the run saved there"
        except DeepPruningError as error:
            lost[role] = str(error)
    return lost
