"""Shared by commands that run for long: starting a run, and a hint how to continue one that stopped."""

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
from deeppruning.system.files import plain_name
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
        # A refusal to start says itself what to do; only a run that this command started needs the hint.
        if had_run or not (run_dir / CONFIG).exists():
            raise
        raise RunError(f"{error}\nwhat was done is saved; continue with: {again}") from error


def check_untrained(
    inputs: Inputs,
    search: SearchConfig,
    finetune: FinetuneConfig,
    choice: BackendChoice,
    backend: Backend | None,
    device: str,
    target: Limits,
) -> None:
    """Raise before a network is trained for hours what `start` would raise afterwards."""
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
    """Do a whole run in a new folder; `run_table` becomes the [run] table of its config.toml."""
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


def folder_name(*names: str) -> str:
    """The name of a folder made of those of a model and a data set, which may be paths.

    >>> folder_name("resnet20", "data/flowers:load")
    'resnet20-data-flowers-load'
    """
    return plain_name("-".join(names))
