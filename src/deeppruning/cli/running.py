"""What `prune`, `resume`, `finetune` and `demo` share: starting a run, and ending it well or stopped."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch

from deeppruning import api
from deeppruning.backends import Backend
from deeppruning.cli.main import exit_code
from deeppruning.cli.options.backend import BackendChoice
from deeppruning.cli.options.inputs import Inputs, Loaded
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.display.outcome import conclude, keep_latencies
from deeppruning.display.progress import SearchProgress
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.job import Compute
from deeppruning.jobs.prepare import prepare
from deeppruning.jobs.result import Result
from deeppruning.limits import Limits
from deeppruning.runs.folder import CONFIG
from deeppruning.training.evaluate import outputs_on

NO_LIMITS = Limits()


@contextmanager
def resumable(run_dir: Path, again: str) -> Iterator[None]:
    """Say how to go on after Ctrl-C or SIGTERM, and after an error that stopped a run.

    `again` is the command that goes on once there is a run in the folder.
    """
    had_run = (run_dir / CONFIG).exists()
    try:
        yield
    except KeyboardInterrupt as stopped:
        begun = (run_dir / CONFIG).exists()
        how = f"go on with: {again}" if begun else "nothing was begun; the same command starts it"
        click.echo(f"stopped; {how}", err=True)
        raise click.exceptions.Exit(exit_code(stopped)) from None
    except DeepPruningError as error:
        # A refusal to start has its own advice; only a run that this command began needs ours.
        if had_run or not (run_dir / CONFIG).exists():
            raise
        raise RunError(f"{error}\nwhat was done is kept; go on with: {again}") from error


def check_untrained(
    inputs: Inputs,
    search: SearchConfig,
    finetune: FinetuneConfig,
    choice: BackendChoice,
    backend: Backend | None,
    device: str,
    target: Limits,
) -> None:
    """Refuse, before hours go into its training, all that `start` would refuse of a trained network."""
    with torch.random.fork_rng():
        loaded = inputs.load()
        workers, timeout = choice.local_workers(search.threads), choice.local_timeout()
        prepare(
            loaded.network,
            loaded.splits.train,
            loaded.splits.test,
            search=search,
            finetune=finetune,
            target=target,
            objective=loaded.objective,
            compute=Compute(workers, device, backend, timeout),
            measure=False,
        )
        outputs_on(loaded.network, loaded.splits.test.subset(torch.arange(1)))


def start(
    out: Path,
    loaded: Loaded,
    search: SearchConfig,
    finetune: FinetuneConfig,
    progress: SearchProgress,
    run_table: dict[str, Any],
    *,
    backend: Backend | None = None,
    target: Limits = NO_LIMITS,
) -> Result:
    """Begin a run in a new folder and see it through; `run_table` says where it runs, for its config."""
    progress.say(loaded.normalization_line)
    with progress:
        result = api.prune(
            loaded.network,
            loaded.splits.train,
            loaded.splits.test,
            run_dir=out,
            search=search,
            finetune=finetune,
            workers=run_table.get("workers"),
            device=run_table["device"],
            backend=backend,
            candidate_timeout=run_table.get("candidate_timeout") if backend is None else None,
            objective=loaded.objective,
            observer=progress,
            progress=False,
            report=False,  # after the latencies
            target=target,
            tables={**loaded.inputs.tables(), "run": run_table},
        )
    keep_latencies(result, loaded.network, torch.zeros(1, *loaded.splits.test.image_shape))
    conclude(out, progress)
    return result
