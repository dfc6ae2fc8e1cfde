"""What a data set with a name consists of, and the registry of them: one file each in `data/sets/`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deeppruning.data.splits import DataSplits
from deeppruning.registry import Registry

Say = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """Where a data set lies, and the call that loads it from there."""

    path: Path
    load: Callable[[], DataSplits]


@dataclass(frozen=True)
class KnownData:
    """A data set with a name: how it is found in one data folder, and how it is got."""

    name: str
    about: str
    looked_for: str
    how_to_get: str
    find: Callable[[Path], Found | None]
    elsewhere: tuple[Path, ...] = ()  # folders looked in after the user's
    download: Callable[[Path, Say], None] | None = None  # into a data folder, telling what it does


KNOWN: Registry[KnownData] = Registry("data set", "deeppruning.data.sets")
