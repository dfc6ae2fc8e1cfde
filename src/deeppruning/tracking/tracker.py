"""What a tracker is: the contract that each of them keeps, and the trackers by name."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from deeppruning.errors import InputError
from deeppruning.registry import Registry
from deeppruning.system.commands import how_to_install

Value = str | int | float | bool
GENERATION, EPOCH = "generation", "epoch"  # what the steps of a metric count


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told when its record begins or goes on."""

    name: str
    folder: Path | None  # of the run; None for a search that keeps nothing on disk
    kept: Mapping[str, str]  # what `open` returned when the record began; empty for a new record


class Tracker(ABC):
    """Writes one run into one record.

    All methods are called from the process and thread that started the run: first `open`, then the others in
    any order, at last `close`. Values are plain and finite. An error in `open` ends the run before the search
    begins; one in any other method is shown once, and the run goes on without the tracker. Nothing may be
    sent over a network unless the user has configured it.
    """

    name: str
    needs: str = ""  # the package that it imports, if that is optional

    def check(self) -> None:
        """Raise before any work if the package is not installed."""
        if self.needs:
            self.package()

    def package(self) -> Any:
        """The package that it needs."""
        try:
            return importlib.import_module(self.needs)
        except ImportError as error:
            raise InputError(
                f"the tracker {self.name} needs the package {self.needs}, the extra "
                f"deeppruning-es[{self.name}]: {how_to_install(self.needs)}"
            ) from error

    @abstractmethod
    def open(self, run: TrackedRun) -> Mapping[str, str]:
        """Begin a record, or continue the one of `run.kept`; returns what is needed to continue it later.

        The run keeps that in its folder. A folder may come from someone else, so what is kept must be names
        and ids only: addresses come from the user's own settings.
        """

    @abstractmethod
    def options(self, values: Mapping[str, Value]) -> None:
        """The options of the run and its environment; called once, when the record begins."""

    @abstractmethod
    def metrics(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Values of curves, at a step that counts generations or epochs (`axis`)."""

    @abstractmethod
    def image(self, name: str, png: bytes, step: int) -> None:
        """A plot."""

    @abstractmethod
    def summary(self, values: Mapping[str, float], text: str) -> None:
        """The final figures, by names such as knee/test_error, and the same as Markdown for people."""

    def files(self, paths: Mapping[str, Path]) -> None:  # noqa: B027
        """The files that the run has written, by name; a tracker that holds no files does nothing."""

    @abstractmethod
    def close(self, status: str) -> None:
        """Write what is left; the status is "finished", "failed" or "stopped" (by the user)."""


TRACKERS: Registry[Any] = Registry("tracker", "deeppruning.tracking.kinds")
Kind = TypeVar("Kind", bound=type[Tracker])


class TrackerKind:
    """A class of trackers under its name; every run gets a tracker of its own."""

    def __init__(self, make: type[Tracker]) -> None:
        self.name, self.make = make.name, make


def register_tracker(kind: Kind) -> Kind:
    """A decorator of classes: the tracker can be given by its name."""
    if kind.name in TRACKERS and TRACKERS[kind.name].make.__qualname__ == kind.__qualname__:
        TRACKERS.remove(kind.name)  # redefined, as in a notebook
    TRACKERS.add(TrackerKind(kind))
    return kind
