"""The backends for --backend: each registers itself in its own file, with its own options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeppruning.backends.base import Backend
from deeppruning.backends.limits import AUTO, Timeout, read_timeout
from deeppruning.options import MACHINE, Options, described_options, option
from deeppruning.registry import Registry

LOCAL = "local"  # the default


@dataclass(frozen=True, kw_only=True)
class BackendOptions(Options):
    """The options of every backend; None where a user leaves them open."""

    backend: str | None = option(
        None, "Where candidates are evaluated.", heading=MACHINE, common=True, default_text=LOCAL
    )
    workers: int | None = option(  # of a cluster; on this machine the number of cores is the limit
        None, "Number of candidates evaluated at the same time.", heading=MACHINE, low=1, high=1 << 16,
        common=True, default_text="local: cores / threads; otherwise what the backend has room for",
    )  # fmt: skip
    candidate_timeout: Timeout | None = option(
        None, "Seconds after which a worker counts as hung and is replaced; or auto, or off.",
        heading=MACHINE, metavar="SECONDS|auto|off",
        default_text="auto: 20 times the median so far, at least 60 s",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.candidate_timeout is not None:
            object.__setattr__(self, "candidate_timeout", read_timeout(self.candidate_timeout))
        super().__post_init__()


@dataclass(frozen=True)
class Wanted:
    """The settings a backend is created with; `options` are those of its own that are given."""

    threads: int = 1
    workers: int | None = None  # by default as many as fit
    timeout: Timeout = AUTO
    say: Callable[[str], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BackendKind:
    """A backend by name: how it is created, and its own options, all None where they are not given.

    They are stored in a run's config.toml under the names of their fields. A name that ends with _address
    leads to another machine: in a run made by someone else it is not used without --trust-run.
    """

    name: str
    about: str  # for --help
    make: Callable[[Wanted], Backend]
    options: type[Options] = Options

    @property
    def option_names(self) -> list[str]:
        """The names of its own options."""
        return list(described_options(self.options))


BACKENDS: Registry[BackendKind] = Registry("backend", "deeppruning.backends")


def backends_by_option() -> dict[str, BackendKind]:
    """The names of all backends' own options, each with its backend."""
    return {name: kind for kind in BACKENDS.values() for name in kind.option_names}


def address_flags() -> list[str]:
    """The flags among them that are addresses which work is sent to, without the dashes before them."""
    return [name.replace("_", "-") for name in backends_by_option() if name.endswith("_address")]
