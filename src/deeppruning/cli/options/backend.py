"""--backend and what goes with it: where candidates are evaluated, from the flags or as a run has it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import click

from deeppruning.backends import Backend, RayBackend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.cli.options.search import Command
from deeppruning.errors import InputError, unknown
from deeppruning.system.device import choose_device, default_workers

BACKENDS = ("local", "ray")


def backend_options(*, resuming: bool = False) -> Callable[[Command], Command]:
    """Adds --workers, --candidate-timeout, --backend and the options of Ray, all None where not given."""
    run = "as in the run"
    shown = {
        "workers": run if resuming else "local: cores / threads; ray: what the cluster has room for",
        "timeout": run if resuming else "auto: 20 times the median so far, 60 s at least",
        "backend": run if resuming else "local",
        "ray_address": run if resuming else "none: Ray starts on this machine and stops with the run",
        "ray_cpus": run if resuming else "as many as --threads",
        "ray_gpus": run if resuming else "0",
    }
    options = [
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help=f"Candidates evaluated at a time. [{shown['workers']}]",
        ),
        click.option(
            "--candidate-timeout",
            metavar="SECONDS|auto|off",
            callback=_timeout,
            help=f"When a worker counts as hung; it is killed and replaced. [{shown['timeout']}]",
        ),
        click.option(
            "--backend",
            metavar="local|ray",
            help=f"Where candidates are evaluated: local, or ray for a cluster. [{shown['backend']}]",
        ),
        click.option(
            "--ray-address",
            metavar="auto|HOST:PORT|ray://HOST:PORT",
            help=f"The Ray cluster to join. [{shown['ray_address']}]",
        ),
        click.option("--ray-cpus", type=float, help=f"Processors a candidate. [{shown['ray_cpus']}]"),
        click.option(
            "--ray-gpus", type=float, help=f"GPUs a candidate, 0.25 for a quarter. [{shown['ray_gpus']}]"
        ),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _timeout(context: click.Context, option: click.Parameter, given: str | None) -> Timeout | None:
    return None if given is None else read_timeout(given)


@dataclass(frozen=True)
class BackendChoice:
    """What the flags say about the backend; None where they do not."""

    backend: str | None = None
    workers: int | None = None
    ray_address: str | None = None
    ray_cpus: float | None = None
    ray_gpus: float | None = None
    candidate_timeout: Timeout | None = None

    def __post_init__(self) -> None:
        if self.candidate_timeout is not None:
            read_timeout(self.candidate_timeout)
        if self.backend is not None and self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        given = [name for name in ("ray_address", "ray_cpus", "ray_gpus") if getattr(self, name) is not None]
        if given and self.backend not in (None, "ray"):
            raise InputError(f"--{given[0].replace('_', '-')} goes with --backend ray only")

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "BackendChoice":
        """The choice in a command's settings, which keep the rest."""
        return cls(**{field.name: settings.pop(field.name) for field in fields(cls)})

    def or_as_in(self, table: Mapping[str, Any]) -> "BackendChoice":
        """What is not said is as a run's table has it, unless that is about another backend."""
        named = any(value is not None for value in (self.ray_address, self.ray_cpus, self.ray_gpus))
        stored = str(table.get("backend", "local"))
        backend = self.backend or ("ray" if named else stored)
        if backend != stored:
            table = {}
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        kept: dict[str, Any] = {
            name: table.get(name) if value is None else value for name, value in known.items()
        }
        return BackendChoice(**{**kept, "backend": backend})

    def table(self, threads: int) -> dict[str, Any]:
        """The choice as entries of a run's config.toml; what is None is left out."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)}
        entries["backend"] = self.backend or "local"
        if entries["backend"] == "local":
            entries["workers"] = self.local_workers(threads)
        return {name: value for name, value in entries.items() if value is not None}

    def local_timeout(self) -> Timeout | None:
        """The time limit for local workers, if one was given; another backend has its own already."""
        return None if self.backend == "ray" else self.candidate_timeout

    def local_workers(self, threads: int) -> int:
        """How many local processes that makes."""
        return default_workers(threads) if self.workers is None else self.workers

    def make(self, threads: int, device: str, say: Callable[[str], None]) -> Backend | None:
        """The backend, None for the local one, which needs no making; the device is checked here."""
        if self.backend != "ray":
            choose_device(device)
            return None
        made = RayBackend(
            address=self.ray_address,
            cpus=threads if self.ray_cpus is None else self.ray_cpus,
            gpus=self.ray_gpus or 0,
            threads=threads,
            workers=self.workers,
            timeout=AUTO if self.candidate_timeout is None else self.candidate_timeout,
            say=say,
        )
        made.device(device)
        return made


@contextlib.contextmanager
def entered(choice: BackendChoice, backend: Backend | None, threads: int) -> Iterator[int]:
    """The backend's `with` block, if it has one; gives the number of candidates at a time."""
    if isinstance(backend, RayBackend):
        with backend:
            yield backend.room()
    else:
        yield choice.local_workers(threads)
