"""A time budget: a search ends after the generation with which its minutes are over."""

from __future__ import annotations

import time

from deeppruning.runs import facts
from deeppruning.runs.history import History


class TimeBudget:
    """Counts the time of a search over all sittings; one that was ended by it ends there again if resumed."""

    def __init__(self, minutes: float | None, history: History) -> None:
        self.minutes = minutes
        self._history = history
        self._before = history.get_fact(facts.SPENT) or 0.0
        self._began = time.monotonic()
        self._last = self._before

    def is_over(self, generation: int) -> bool:
        """Whether the search ends here: another generation as long as this one would end too late."""
        if self.minutes is None:
            return False
        ended = self._history.get_fact(facts.ENDED)
        if ended is not None:
            return generation >= ended
        spent = self._before + time.monotonic() - self._began
        took, self._last = spent - self._last, spent
        self._history.set_fact(facts.SPENT, spent)
        if spent + took <= 60 * self.minutes:
            return False
        self._history.set_fact(facts.ENDED, generation)
        return True

    def line(self, generation: int, planned: int, improved: int, ranges: int) -> str:
        """What people are told, with what more time might bring."""
        return (
            f"the budget of {self.minutes:g} minutes is spent: the search ends after {generation} of "
            f"{planned} generations; the last one improved {improved} of {ranges} cost ranges, which more "
            "time might improve further"
        )
