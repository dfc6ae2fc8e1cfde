"""How long an item may take until its worker counts as hung, judged by what such items took so far."""

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Any

from deeppruning.errors import InputError

AUTO, OFF = "auto", "off"
# A healthy item that is taken for hung costs its work, a hung one only waiting: so all of these are generous.
_TIMES_THE_MEDIAN = 20.0
_AT_LEAST = 60.0
_BEFORE_ANY_IS_DONE = 3600.0
_GROWTH = 3.0  # each further attempt, for an item that is slower than its like and not hung

Timeout = float | str  # seconds, AUTO or OFF
Kind = Callable[[Any], Hashable]  # what an item has in common with others that take about as long


def read_timeout(given: object) -> Timeout:
    """A time limit as a user writes it: auto, off, or seconds."""
    if given in (AUTO, OFF):
        return str(given)
    try:
        seconds = math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"a time limit must be auto, off or a number of seconds above 0, got {given!r}")
    return seconds


def same_kind(item: object) -> Hashable:
    """The kind of items that are all alike."""
    return None


class TimeLimit:
    """The limit for each kind of item; those of one kind that were done decide on the next."""

    def __init__(self, timeout: Timeout) -> None:
        self._timeout = read_timeout(timeout)
        self._seconds: dict[Hashable, list[float]] = defaultdict(list)  # in order

    def note(self, kind: Hashable, seconds: float) -> None:
        """An item of this kind was done within so many seconds."""
        bisect.insort(self._seconds[kind], seconds)

    def of(self, kind: Hashable, attempt: int) -> float:
        """Seconds for the given attempt at an item of this kind, the first being 1."""
        if self._timeout == OFF:
            return math.inf
        if self._timeout != AUTO:
            return float(self._timeout)
        known = self._seconds.get(kind)
        if not known:
            return _BEFORE_ANY_IS_DONE * _GROWTH ** (attempt - 1)
        median = known[len(known) // 2]
        return float(max(_AT_LEAST, _TIMES_THE_MEDIAN * median) * _GROWTH ** (attempt - 1))


class Waiting:
    """Seconds that this process has spent waiting, in steps none of which counts for more than `longest`.

    When the machine sleeps or this process is stopped, time passes in which no worker could be heard. It
    shows as one long step, so that it says nothing about the workers.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._began = math.nan

    def __enter__(self) -> "Waiting":
        self._began = monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = min(monotonic() - self._began, self._longest)
