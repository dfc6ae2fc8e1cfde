"""The backends for --backend: each registers itself in its own file, with its own flags."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeppruning.backends.base import Backend
from deeppruning.backends.limits import AUTO, Timeout
from deeppruning.errors import InputError
from deeppruning.registry import Registry

LOCAL = "local"  # the default


@dataclass(frozen=True)
class BackendOption:
    """A flag of one backend, stored in a run's config.toml under its name.

    A name that ends with _address leads to another machine: in a run made by someone else it is not used
    without --trust-run.
    """

    name: str  # as in config.toml; the flag has - for _
    about: str  # for --help
    default: str  # for --help: what happens without it
    holds: type[str] | type[float] = str
    metavar: str | None = None

    @property
    def flag(self) -> str:
        """Its name on the command line, without the dashes before it."""
        return self.name.replace("_", "-")

    @property
    def is_address(self) -> bool:
        """Whether it is an address that work is sent to."""
        return self.name.endswith("_address")

    def check(self, value: object) -> None:
        """Refuse a value of another type, which a file may contain."""
        types, word = ((int, float), "number") if self.holds is float else (str, "text")
        if isinstance(value, bool) or not isinstance(value, types):
            raise InputError(f"--{self.flag} must be a {word}, got {value!r}")


@dataclass(frozen=True)
class Wanted:
    """The settings a backend is created with; `options` are the values of its flags."""

    threads: int = 1
    workers: int | None = None  # by default as many as fit
    timeout: Timeout = AUTO
    say: Callable[[str], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BackendKind:
    """A backend by name: how it is created, and its flags."""

    name: str
    about: str  # for --help
    make: Callable[[Wanted], Backend]
    options: tuple[BackendOption, ...] = ()


BACKENDS: Registry[BackendKind] = Registry("backend", "deeppruning.backends")


def backend_flags() -> dict[str, tuple[BackendKind, BackendOption]]:
    """The flags of all backends by name in config.toml."""
    return {option.name: (kind, option) for kind in BACKENDS.values() for option in kind.options}
