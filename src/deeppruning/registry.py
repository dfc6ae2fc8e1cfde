"""The extension points: each is a registry of things by name, filled by the files of one package.

Whoever looks into a registry has all modules of its package imported first, so a new file there is all it
takes to add a thing. Things are listed by the place they ask for, then in the order of their modules: that of
`ORDER` where the package has one, then by the alphabet, then those of other packages. Names of objectives and
evaluations are options, which are checked without torch: modules import what is heavy where they use it.
"""

import importlib
import pkgutil
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from deeppruning.errors import InputError, unknown

if TYPE_CHECKING:
    from deeppruning.comparison.problem import Method
    from deeppruning.objectives import Objective
    from deeppruning.searching.evaluations.base import EvaluationKind
    from deeppruning.searching.importance.criteria import Criterion


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""


Entry = TypeVar("Entry", bound=Named)
_NAME = re.compile(r"[a-z0-9][a-z0-9_+-]*")  # it becomes part of file names, options and lists with commas


class Registry(Mapping[str, Entry]):
    """Things of one kind by name: those of the package first, then the user's own."""

    def __init__(self, kind: str, home: str) -> None:
        self.kind = kind
        self.home = home
        self._entries: dict[str, Entry] = {}
        self._places: dict[str, int] = {}
        self._followers: list[Callable[[Entry], object]] = []
        self._modules: list[str] | None = None  # of the package, in their order, once they are imported
        self._lock = threading.RLock()

    def add(self, entry: Entry, *, place: int = 100) -> Entry:
        """Enter a thing under its name; a class defined anew, as notebooks do, takes its old place."""
        if not type(entry).__module__.startswith(self.home):
            self._load()  # or a name of the package's own would be found taken by the package itself
        self._check_name(entry)
        for follower in self._followers:
            follower(entry)
        self._entries[entry.name] = entry
        self._places[entry.name] = place
        return entry

    def remove(self, name: str) -> None:
        """Take a thing out again."""
        del self._entries[name], self._places[name]

    def follow(self, follower: Callable[[Entry], object]) -> None:
        """Call a function with every thing that is here, and with every one that comes later."""
        for entry in self.values():
            follower(entry)
        self._followers.append(follower)

    def find(self, name: str) -> Entry:
        """The thing of this name; for a name that is not known, an error that offers the nearest."""
        if name not in self:
            raise unknown(self.kind, str(name), self)
        return self[name]

    def __getitem__(self, name: str) -> Entry:
        self._load()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        modules = self._load()
        last = len(modules)
        places = {name: place for place, name in enumerate(modules)}

        def order(name: str) -> tuple[int, int]:
            return self._places[name], places.get(type(self._entries[name]).__module__, last)

        return iter(sorted(self._entries, key=order))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _check_name(self, entry: Entry) -> None:
        one, name = f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}", getattr(entry, "name", None)
        if name is None:
            raise InputError(f'{type(entry).__name__} has no name; give {one} one, for example name = "mine"')
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"the name of {one} is of a-z, 0-9, -, _ and +, got {name!r}")
        old = self._entries.get(name)
        # Things that share one class are told apart by their names alone.
        shared = any(type(other) is type(entry) for other in self._entries.values() if other is not old)
        if old is not None and (shared or _origin(old) != _origin(entry)):
            raise InputError(f"{one} named {name!r} is registered already; give this one another name")

    def _load(self) -> list[str]:
        with self._lock:  # another thread waits until all are there
            if self._modules is None:
                package = importlib.import_module(self.home)
                first = list(getattr(package, "ORDER", ()))
                others = [module.name for module in pkgutil.iter_modules(getattr(package, "__path__", []))]
                names = [f"{self.home}.{name}" for name in dict.fromkeys([*first, *others])]
                self._modules = names  # from here on, for what these modules look up themselves
                try:
                    for name in names:
                        importlib.import_module(name)
                except BaseException:
                    self._modules = None  # whoever looks next meets the same error, not half of the things
                    raise
            return self._modules


def _origin(entry: object) -> tuple[str, str]:
    return type(entry).__module__, type(entry).__qualname__


CRITERIA: "Registry[Criterion]" = Registry("criterion", "deeppruning.searching.importance")
OBJECTIVES: "Registry[Objective]" = Registry("objective", "deeppruning.objectives")
EVALUATIONS: "Registry[EvaluationKind]" = Registry("evaluation", "deeppruning.searching.evaluations")
METHODS: "Registry[Method]" = Registry("method", "deeppruning.comparison.methods")
