"""Things of one kind by name: each enters itself where it is written, and no list elsewhere names it.

>>> from types import SimpleNamespace
>>> fruit = Registry("fruit")
>>> fruit.add(SimpleNamespace(name="pear"), place=20).name, fruit.add(SimpleNamespace(name="apple")).name
('pear', 'apple')
>>> list(fruit)
['pear', 'apple']
>>> fruit.named("pera")
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: unknown fruit 'pera'; did you mean pear? Known: apple, pear
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar

from deeppruning.errors import InputError, unknown


class Named(Protocol):
    """What can be entered: anything with a name."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""


Entry = TypeVar("Entry", bound=Named)


class Registry(Mapping[str, Entry]):
    """Entries in the order of their places; the modules of `package` are imported at the first look.

    So a new file in the package is all that a new entry takes; code outside may add entries as well.
    """

    def __init__(self, kind: str, package: str = "") -> None:
        self._kind = kind
        self._package = package
        self._entries: dict[str, tuple[int, Entry]] = {}

    def add(self, entry: Entry, *, place: int = 100) -> Entry:
        """Enter it under its name; those of a lower place are listed first."""
        if entry.name in self._entries:
            raise InputError(f"there is a {self._kind} {entry.name!r} already; choose another name")
        self._entries[entry.name] = (place, entry)
        return entry

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        del self._entries[name]

    def named(self, name: str) -> Entry:
        """The entry of this name; a misspelt one is refused with the nearest."""
        if name not in self:
            raise unknown(self._kind, name, self)
        return self[name]

    def __getitem__(self, name: str) -> Entry:
        self._look_around()
        return self._entries[name][1]

    def __iter__(self) -> Iterator[str]:
        self._look_around()
        return iter(sorted(self._entries, key=lambda name: self._entries[name][0]))

    def __len__(self) -> int:
        self._look_around()
        return len(self._entries)

    def _look_around(self) -> None:
        package, self._package = self._package, ""
        if package:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
                importlib.import_module(f"{package}.{module.name}")
