"""A registry of things by name (data sets, methods, backends, formats), imported from their home.

Looking into a registry first imports all modules of its package, so a new file there is all it takes to add a
thing. Entries are listed by the `place` they ask for, then in the order of their modules: that of `ORDER` if
the package defines it, then alphabetical, then those of other packages.
"""

import importlib
import pkgutil
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from deeppruning.errors import InputError, unknown


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """The name under which it is registered."""


Entry = TypeVar("Entry", bound=Named)
Class = TypeVar("Class", bound=type[Any])
_NAME = re.compile(r"[a-z0-9][a-z0-9_+-]*")  # it becomes part of file names, options and lists with commas


class Registry(Mapping[str, Entry]):
    """Things of one kind by name: those of its home first, then the user's own."""

    def __init__(self, kind: str, home: str) -> None:
        self.kind = kind
        self.home = home
        self._entries: dict[str, Entry] = {}
        self._places: dict[str, int] = {}
        self._followers: list[Callable[[Entry], object]] = []
        self._modules: list[str] | None = None  # of the home, in order, once they are imported
        self._lock = threading.RLock()

    def add(self, entry: Entry, *, place: int = 100) -> Entry:
        """Register a thing under its name; a class that is redefined, as in a notebook, keeps its place."""
        if not type(entry).__module__.startswith(self.home):
            self._import_home()  # otherwise a name of the home would count as taken when the home is imported
        self._check_entry_name(entry)
        self._entries[entry.name] = entry
        self._places[entry.name] = place
        for follower in self._followers:
            follower(entry)
        return entry

    def register(self, kind: Class) -> Class:
        """A decorator of classes: register an instance."""
        self.add(kind())
        return kind

    def remove(self, name: str) -> None:
        """Remove an entry."""
        del self._entries[name], self._places[name]

    def follow(self, follower: Callable[[Entry], object]) -> None:
        """Call a function with every entry, and with every one that is added later."""
        for entry in self.values():
            follower(entry)
        self._followers.append(follower)

    def find(self, name: str) -> Entry:
        """The entry of this name; an unknown name is an error that suggests the nearest one."""
        if name not in self:
            raise unknown(self.kind, str(name), self)
        return self[name]

    def __getitem__(self, name: str) -> Entry:
        self._import_home()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        modules = self._import_home()

        def order(name: str) -> tuple[int, int]:
            module = type(self._entries[name]).__module__
            return self._places[name], modules.index(module) if module in modules else len(modules)

        return iter(sorted(self._entries, key=order))

    def __len__(self) -> int:
        self._import_home()
        return len(self._entries)

    def _check_entry_name(self, entry: Entry) -> None:
        kind = f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"
        name = getattr(entry, "name", None)
        if name is None:
            raise InputError(f'{type(entry).__name__} has no name; {kind} needs one, such as name = "mine"')
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"the name of {kind} may contain a-z, 0-9, -, _ and +, got {name!r}")
        old = self._entries.get(name)
        # Entries that share a class differ by name only.
        shared = any(type(other) is type(entry) for other in self._entries.values() if other is not old)
        origins = {(type(each).__module__, type(each).__qualname__) for each in (old, entry)}
        if old is not None and (shared or len(origins) > 1):
            raise InputError(f"{kind} named {name!r} is already registered; choose another name")

    def _import_home(self) -> list[str]:
        """Import all modules of the home, once, and return their names."""
        with self._lock:  # another thread waits until all modules are imported
            if self._modules is None:
                home = importlib.import_module(self.home)
                first = list(getattr(home, "ORDER", ()))
                others = [module.name for module in pkgutil.iter_modules(getattr(home, "__path__", []))]
                names = [f"{self.home}.{name}" for name in dict.fromkeys([*first, *others])]
                self._modules = names  # set now: these modules may look into the registry themselves
                try:
                    for name in names:
                        importlib.import_module(name)
                except BaseException:
                    self._modules = None  # the next lookup raises the same error, not a half-filled registry
                    raise
            return self._modules
