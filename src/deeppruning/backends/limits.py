"""How long an item may take until its worker counts as hung, derived from the time of such items so far."""

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

from deeppruning.errors import InputError

AUTO, OFF = "auto", "off"
# An item wrongly taken for hung costs its work, a hung one only waiting: so all of these are generous.
_TIMES_THE_MEDIAN = 20.0
_AT_LEAST = 60.0
_BEFORE_ANY_IS_DONE = 3600.0
_GROWTH = 3.0  # with each further attempt, for an item that is slow but not hung

Timeout = float | str  # seconds, AUTO or OFF
Kind = Callable[[Any], Hashable]  # equal for items that take about as long


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
    """One kind for all items."""
    return None


class TimeLimit:
    """The time limit of each kind of item, derived from the items of that kind that are done."""

    def __init__(self, timeout: Timeout) -> None:
        self._timeout = read_timeout(timeout)
        self._seconds: dict[Hashable, list[float]] = defaultdict(list)  # in order

    def note(self, kind: Hashable, seconds: float) -> None:
        """Record the seconds that an item of this kind took."""
        bisect.insort(self._seconds[kind], seconds)

    def of(self, kind: Hashable, attempt: int) -> float:
        """Seconds for an attempt at an item of this kind; the first attempt is 1."""
        if self._timeout == OFF:
            return math.inf
        if self._timeout != AUTO:
            return float(self._timeout)
        done = self._seconds.get(kind)
        if not done:
            return _BEFORE_ANY_IS_DONE * _GROWTH ** (attempt - 1)
        median = done[len(done) // 2]
        return float(max(_AT_LEAST, _TIMES_THE_MEDIAN * median) * _GROWTH ** (attempt - 1))
