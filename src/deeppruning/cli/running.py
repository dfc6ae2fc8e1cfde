"""Shared by commands that run for long: starting a run, and a hint how to continue one that stopped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import torch

from deeppruning import api
from deeppruning.backends import Backend
from deeppruning.cli.main import exit_code
from deeppruning.cli.options.backend import BackendChoice
from deeppruning.cli.options.inputs import Inputs, Loaded
from deeppruning.cli.options.run import Vouched
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.outcome import conclude, keep_latencies, show_saved
from deeppruning.display.picture import make_progress
from deeppruning.display.progress import SearchProgress
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.prepare import Compute, prepare
from deeppruning.jobs.result import Result
from deeppruning.jobs.solution import Solution
from deeppruning.jobs.targeting import Unmet
from deeppruning.limits import Limits
from deeppruning.runs.folder import CONFIG, RunFolder
from deeppruning.system.device import choose_device
from deeppruning.tracking import Tracking
from deeppruning.training.evaluate import outputs_on

NO_LIMITS = Limits()


@contextmanager
def resumable(run_dir: Path, again: str) -> Iterator[None]:
    """Print how to continue after Ctrl-C, SIGTERM or an error: by the command `again`, if there is a run."""
    had_run = (run_dir / CONFIG).exists()
    try:
        yield
    except KeyboardInterrupt as stopped:
        begun = (run_dir / CONFIG).exists()
        how = f"continue with: {again}" if begun else "no run was started; the same command starts it"
        click.echo(f"stopped; {how}", err=True)
        raise click.exceptions.Exit(exit_code(stopped)) from None
    except DeepPruningError as error:
        # A refusal to start and a search without a result say themselves what to do; only a run that this
        # command started and did not finish needs the hint.
        if had_run or isinstance(error, Unmet) or not (run_dir / CONFIG).exists():
            raise
        raise RunError(f"{error}\nwhat was done is saved; continue with: {again}") from error


def check_untrained(
    inputs: Inputs,
    search: SearchConfig,
    finetune: FinetuneConfig,
    backend: Backend,
    device: str,
    target: Limits,
) -> None:
    """Raise before a network is trained for hours what `start` would raise afterwards."""
    with torch.random.fork_rng():
        loaded = inputs.load()
        prepare(
            *loaded.model_and_data,
            search=search,
            finetune=finetune,
            target=target,
            objective=loaded.objective,
            compute=Compute(None, device, backend),
            measure=False,
        )
        outputs_on(loaded.network, loaded.splits.test.subset(torch.arange(1)))


def start(
    out: Path,
    loaded: Loaded,
    search: SearchConfig,
    finetune: FinetuneConfig,
    progress: SearchProgress,
    choice: BackendChoice,
    backend: Backend,
    *,
    device: str = "auto",
    target: Limits = NO_LIMITS,
    tracking: Tracking | None = None,
) -> None:
    """Do a whole run in a new folder, and show its result."""
    progress.say(loaded.normalization_line)
    with progress:
        result = api.prune(
            *loaded.model_and_data,
            run_dir=out,
            search=search,
            finetune=finetune,
            device=device,
            backend=backend,
            objective=loaded.objective,
            observer=progress,
            progress=False,
            report=False,  # after the latencies
            target=target,
            track=tracking,
            tables={**loaded.inputs.tables(), "run": {"device": device, **choice.table(search.threads)}},
        )
    show_result(result, loaded, progress, tracking)


def show_result(
    result: Result, loaded: Loaded, progress: SearchProgress, tracking: Tracking | None = None
) -> None:
    """Measure the latencies of a run's networks, and show all of its result."""
    with tracking or nullcontext():  # closed if this is interrupted
        keep_latencies(result, loaded.network, torch.zeros(1, *loaded.splits.test.image_shape))
        conclude(result.run_dir, progress)
        if tracking is not None:
            tracking.finish(result.run_dir)


def save_one(
    call: Callable[..., Solution], run: Path, again: str, settings: dict[str, Any], **options: Any
) -> None:
    """Save one more network of a run by `dp.pick` or `dp.finetune`, with the run's inputs, and show it."""
    vouched, device = Vouched.take(settings), settings["device"]
    with RunFolder.open(run) as opened:  # raises before data is read if another process has it
        choose_device(device or opened.config["run"]["device"])
    progress = make_progress(quiet=settings["quiet"], as_json=settings["as_json"])
    with resumable(run, again):
        loaded = Inputs.from_run(opened, vouched, settings["weights"]).load()
        with progress:
            solution = call(
                run,
                *loaded.model_and_data,
                device=device or "auto",
                objective=loaded.objective,
                observer=progress,
                progress=False,
                report=False,
                **options,
            )
        show_saved(run, solution, progress)
