"""--backend and what goes with it: where candidates are evaluated, from the flags or as a run has it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from deeppruning.backends import Backend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.backends.registry import BACKENDS, LOCAL, Wanted, backend_flags
from deeppruning.cli.options.headings import MACHINE, Command, under
from deeppruning.errors import InputError
from deeppruning.system.device import choose_device, default_workers, workers_here


def backend_options(*, resuming: bool = False) -> Callable[[Command], Command]:
    """Adds --workers, --candidate-timeout, --backend and each backend's own options, None where not given."""
    run = "as in the run"
    named = [kind.name for kind in BACKENDS.values()]
    others = ", ".join(f"{kind.name} for {kind.about}" for kind in BACKENDS.values() if kind.name != LOCAL)
    shown = {
        "workers": run if resuming else "local: cores / threads; elsewhere: what there is room for",
        "timeout": run if resuming else "auto: 20 times the median so far, 60 s at least",
        "backend": run if resuming else LOCAL,
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
            metavar="|".join(named),
            help=f"Where candidates are evaluated: {LOCAL}, or {others}. [{shown['backend']}]",
        ),
        *(
            click.option(
                f"--{option.flag}",
                type=option.holds,
                metavar=option.metavar,
                help=f"{option.about} [{run if resuming else option.default}]",
            )
            for _, option in backend_flags().values()
        ),
    ]

    return under(MACHINE, *options)


def _timeout(context: click.Context, option: click.Parameter, given: str | None) -> Timeout | None:
    return None if given is None else read_timeout(given)


@dataclass(frozen=True)
class BackendChoice:
    """What the flags say about the backend; None where they do not."""

    backend: str | None = None
    workers: int | None = None
    candidate_timeout: Timeout | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of one backend, those that are given

    def __post_init__(self) -> None:
        if self.candidate_timeout is not None:
            read_timeout(self.candidate_timeout)
        if self.backend is not None:
            BACKENDS.find(self.backend)
        for name, value in self.options.items():
            kind, option = backend_flags()[name]
            option.check(value)
            if self.backend not in (None, kind.name):
                raise InputError(f"--{option.flag} goes with --backend {kind.name} only")

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "BackendChoice":
        """The choice in a command's settings, which keep the rest."""
        own = {name: settings.pop(name) for name in backend_flags()}
        return cls(
            **{name: settings.pop(name) for name in ("backend", "workers", "candidate_timeout")},
            options={name: value for name, value in own.items() if value is not None},
        )

    def or_as_in(self, table: Mapping[str, Any]) -> "BackendChoice":
        """What is not said is as a run's table has it, unless that is about another backend."""
        stored = str(table.get("backend", LOCAL))
        named = next((backend_flags()[name][0].name for name in self.options), stored)
        backend = self.backend or named
        if backend != stored:
            table = {}
        timeout = self.candidate_timeout
        return BackendChoice(
            backend,
            workers=_recorded(table, backend) if self.workers is None else self.workers,
            candidate_timeout=table.get("candidate_timeout") if timeout is None else timeout,
            options={**{name: table[name] for name in backend_flags() if name in table}, **self.options},
        )

    def table(self, threads: int) -> dict[str, Any]:
        """The choice as entries of a run's config.toml; what is None is left out."""
        entries = {
            "backend": self.backend or LOCAL,
            "workers": self.local_workers(threads) if self.is_local else self.workers,
            **{name: self.options[name] for name in backend_flags() if name in self.options},
            "candidate_timeout": self.candidate_timeout,
        }
        return {name: value for name, value in entries.items() if value is not None}

    @property
    def is_local(self) -> bool:
        """Whether it is the backend that a run makes by itself, from its workers and time limit."""
        return self.backend in (None, LOCAL)

    def addresses(self) -> list[str]:
        """The flags among its options that lead to another machine."""
        return [
            option.flag
            for name, (_, option) in backend_flags().items()
            if name in self.options and option.is_address
        ]

    def local_timeout(self) -> Timeout | None:
        """The time limit for local workers, if one was given; another backend has its own already."""
        return self.candidate_timeout if self.is_local else None

    def local_workers(self, threads: int) -> int:
        """How many local processes that makes."""
        return default_workers(threads) if self.workers is None else self.workers

    def make(self, threads: int, device: str, say: Callable[[str], None]) -> Backend | None:
        """The backend, None for the local one, which needs no making; the device is checked here."""
        if self.is_local:
            choose_device(device)
            return None
        timeout = AUTO if self.candidate_timeout is None else self.candidate_timeout
        made = BACKENDS.find(str(self.backend)).make(
            Wanted(threads, self.workers, timeout, say, self.options)
        )
        made.device(device)
        return made


def _recorded(table: Mapping[str, Any], backend: str) -> int | None:
    """The workers of a run: of this machine no more than it has cores, whatever the one before it had."""
    recorded: int | None = table.get("workers")
    return workers_here(recorded) if backend == LOCAL else recorded


@contextlib.contextmanager
def entered(choice: BackendChoice, backend: Backend | None, threads: int) -> Iterator[int]:
    """The backend's `with` block, if it has one; gives the number of candidates at a time."""
    if backend is None:
        yield choice.local_workers(threads)
    else:
        with backend:
            yield backend.room()
