"""--backend and its options: where candidates are evaluated, by the flags or as recorded in a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeppruning.backends import Backend
from deeppruning.backends.limits import AUTO
from deeppruning.backends.registry import (
    BACKENDS,
    LOCAL,
    BackendOptions,
    Wanted,
    address_flags,
    backends_by_option,
)
from deeppruning.cli.options.flags import option_flags, together
from deeppruning.errors import InputError
from deeppruning.jobs.prepare import Compute
from deeppruning.options import described_options
from deeppruning.system.device import workers_here


@dataclass(frozen=True, kw_only=True)
class BackendChoice(BackendOptions):
    """The backend that the flags choose; None where they leave it open."""

    options: Mapping[str, Any] = field(default_factory=dict)  # of the backend, those that are given

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend is not None:
            BACKENDS.find(self.backend)
        for name, value in self.options.items():
            kind = backends_by_option()[name]
            kind.options.from_table({name: value})
            if self.backend not in (None, kind.name):
                raise InputError(f"--{name.replace('_', '-')} needs --backend {kind.name}")

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "BackendChoice":
        """Move these options out of a command's settings."""
        own = {name: settings.pop(name) for name in backends_by_option()}
        return cls(
            **{name: settings.pop(name) for name in described_options(cls)},
            options={name: value for name, value in own.items() if value is not None},
        )

    def or_as_in(self, table: Mapping[str, Any]) -> "BackendChoice":
        """Fill in what is open from a run's table, unless that is about another backend."""
        stored = str(table.get("backend", LOCAL))
        backend = self.backend or next((backends_by_option()[name].name for name in self.options), stored)
        if backend != stored:
            table = {}
        recorded = table.get("workers")
        return BackendChoice(
            backend=backend,
            # On this machine at most as many as it has cores.
            workers=self.workers or (workers_here(recorded) if backend == LOCAL else recorded),
            candidate_timeout=self.candidate_timeout or table.get("candidate_timeout"),
            options={**{name: table[name] for name in backends_by_option() if name in table}, **self.options},
        )

    def table(self, threads: int) -> dict[str, Any]:
        """The [run] entries of a config.toml; None is left out."""
        entries = {
            "backend": self.backend or LOCAL,
            "workers": self._worker_count(threads),
            **{name: self.options[name] for name in backends_by_option() if name in self.options},
            "candidate_timeout": self.candidate_timeout,
        }
        return {name: value for name, value in entries.items() if value is not None}

    def addresses(self) -> list[str]:
        """The flags among its options that are addresses of other machines."""
        return [flag for flag in address_flags() if flag.replace("-", "_") in self.options]

    def make(self, threads: int, device: str, say: Callable[[str], None]) -> Backend:
        """The backend; the device is checked."""
        timeout = self.candidate_timeout or AUTO
        wanted = Wanted(threads, self._worker_count(threads), timeout, say, self.options)
        backend = BACKENDS.find(self.backend or LOCAL).make(wanted)
        backend.device(device)
        return backend

    def _worker_count(self, threads: int) -> int | None:
        local = self.backend in (None, LOCAL)
        return Compute(self.workers).worker_count(threads) if local else self.workers


def backend_options(*, of_run: bool = False) -> Callable[[Any], Any]:
    """Adds --backend, --workers, --candidate-timeout and each backend's own options, None where not given."""
    others = ", ".join(f"{kind.name} for {kind.about}" for kind in BACKENDS.values() if kind.name != LOCAL)
    return together(
        option_flags(
            BackendChoice,
            inherited=of_run,
            choices={"backend": BACKENDS},
            help={"backend": f"Where candidates are evaluated: {LOCAL}, or {others}."},
        ),
        *(option_flags(kind.options, inherited=of_run) for kind in BACKENDS.values()),
    )
