"""The backends that --backend knows: each enters itself in its own file, with the flags that are its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeppruning.backends.base import Backend
from deeppruning.backends.limits import AUTO, Timeout
from deeppruning.errors import InputError
from deeppruning.registry import Registry

LOCAL = "local"  # the one that is taken where none is named


@dataclass(frozen=True)
class BackendOption:
    """A flag of one backend, kept in a run's config.toml under its name.

    What is called ..._address leads to another machine: from a run made by someone else it is not followed
    unless the user vouches for it.
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
        """Whether work would be sent to where it says."""
        return self.name.endswith("_address")

    def check(self, value: object) -> None:
        """Refuse a value of another type, as a file may hold it."""
        fitting, word = ((int, float), "number") if self.holds is float else (str, "text")
        if isinstance(value, bool) or not isinstance(value, fitting):
            raise InputError(f"--{self.flag} must be a {word}, got {value!r}")


@dataclass(frozen=True)
class Wanted:
    """What a backend is made from; `options` are its own, those that were given."""

    threads: int = 1
    workers: int | None = None  # by default as many as there is room for
    timeout: Timeout = AUTO
    say: Callable[[str], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BackendKind:
    """A backend by name: how it is made, and its flags."""

    name: str
    about: str  # for --help
    make: Callable[[Wanted], Backend]
    options: tuple[BackendOption, ...] = ()


BACKENDS: Registry[BackendKind] = Registry("backend", "deeppruning.backends")


def backend_flags() -> dict[str, tuple[BackendKind, BackendOption]]:
    """Every flag that belongs to one backend, by its name in config.toml."""
    return {option.name: (kind, option) for kind in BACKENDS.values() for option in kind.options}
