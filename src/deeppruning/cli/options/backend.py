"""--backend and its options: where candidates are evaluated, by the flags or as recorded in a run."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from deeppruning.backends import Backend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.backends.registry import BACKENDS, LOCAL, Wanted, backend_flags
from deeppruning.cli.options.flags import IN_THE_RUN, flag, together
from deeppruning.errors import InputError
from deeppruning.options import MACHINE
from deeppruning.system.device import choose_device, default_workers, workers_here


def backend_options(*, of_run: bool = False) -> Callable[[Any], Any]:
    """Adds --workers, --candidate-timeout, --backend and each backend's own options, None where not given."""

    def note(default: str) -> str:
        return f"[{IN_THE_RUN if of_run else default}]"

    others = ", ".join(f"{kind.name} for {kind.about}" for kind in BACKENDS.values() if kind.name != LOCAL)
    return together(
        flag(
            "--workers",
            heading=MACHINE,
            common=True,
            type=click.IntRange(min=1),
            help="Number of candidates evaluated at the same time. "
            + note("local: cores / threads; otherwise what the backend has room for"),
        ),
        flag(
            "--candidate-timeout",
            heading=MACHINE,
            type=TimeLimitType(),
            metavar="SECONDS|auto|off",
            help="Seconds after which a worker counts as hung and is replaced; or auto, or off. "
            + note("auto: 20 times the median so far, at least 60 s"),
        ),
        flag(
            "--backend",
            heading=MACHINE,
            common=True,
            metavar="|".join(BACKENDS),
            help=f"Where candidates are evaluated: {LOCAL}, or {others}. {note(LOCAL)}",
        ),
        *(
            flag(
                f"--{option.flag}",
                heading=MACHINE,
                type=option.holds,
                metavar=option.metavar,
                help=f"{option.about} {note(option.default)}",
            )
            for _, option in backend_flags().values()
        ),
    )


class TimeLimitType(click.ParamType):  # type: ignore[type-arg]
    """Seconds, auto or off."""

    name = "time limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Timeout:
        """The limit, or an error that says what it may be."""
        return read_timeout(value)


@dataclass(frozen=True)
class BackendChoice:
    """The backend that the flags choose; None where they leave it open."""

    backend: str | None = None
    workers: int | None = None
    candidate_timeout: Timeout | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the backend, as far as given

    def __post_init__(self) -> None:
        if self.candidate_timeout is not None:
            read_timeout(self.candidate_timeout)
        if self.backend is not None:
            BACKENDS.find(self.backend)
        for name, value in self.options.items():
            kind, option = backend_flags()[name]
            option.check(value)
            if self.backend not in (None, kind.name):
                raise InputError(f"--{option.flag} needs --backend {kind.name}")

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "BackendChoice":
        """Move these options out of a command's settings."""
        own = {name: settings.pop(name) for name in backend_flags()}
        return cls(
            **{name: settings.pop(name) for name in ("backend", "workers", "candidate_timeout")},
            options={name: value for name, value in own.items() if value is not None},
        )

    def or_as_in(self, table: Mapping[str, Any]) -> "BackendChoice":
        """Fill in what is open from a run's table, unless that is about another backend."""
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
        """The [run] entries of a config.toml; None is left out."""
        entries = {
            "backend": self.backend or LOCAL,
            "workers": self.local_workers(threads) if self.is_local else self.workers,
            **{name: self.options[name] for name in backend_flags() if name in self.options},
            "candidate_timeout": self.candidate_timeout,
        }
        return {name: value for name, value in entries.items() if value is not None}

    @property
    def is_local(self) -> bool:
        """Whether it is the local backend, which a run makes itself."""
        return self.backend in (None, LOCAL)

    def addresses(self) -> list[str]:
        """The flags among its options that are addresses of other machines."""
        return [
            option.flag
            for name, (_, option) in backend_flags().items()
            if name in self.options and option.is_address
        ]

    def local_timeout(self) -> Timeout | None:
        """The time limit for local workers, if given; another backend has its own."""
        return self.candidate_timeout if self.is_local else None

    def local_workers(self, threads: int) -> int:
        """The number of local processes."""
        return default_workers(threads) if self.workers is None else self.workers

    def make(self, threads: int, device: str, say: Callable[[str], None]) -> Backend | None:
        """The backend, None for the local one; the device is checked."""
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
    """The workers of a run; local ones are at most as many as this machine has cores."""
    recorded: int | None = table.get("workers")
    return workers_here(recorded) if backend == LOCAL else recorded


@contextlib.contextmanager
def entered(choice: BackendChoice, backend: Backend | None, threads: int) -> Iterator[int]:
    """The backend's `with` block, if it has one; yields the number of candidates at the same time."""
    if backend is None:
        yield choice.local_workers(threads)
    else:
        with backend:
            yield backend.room()
