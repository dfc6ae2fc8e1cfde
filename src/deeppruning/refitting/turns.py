"""Parts of a batch that run in turns: each waits at a meeting point until all the others have reached it.

A layer can only be solved when all inputs have reached it. Small parts that wait for each other need less
memory than one large batch, and a part that fits into the processor's cache runs up to twice as fast.

>>> seen: list[str] = []
>>> turns = Turns(2)
>>> def work(part: int) -> None:
...     seen.append(f"part {part} reads")
...     turns.meet("layer", lambda: seen.append("solved"))
...     seen.append(f"part {part} goes on")
>>> _ = turns.run(work)
>>> seen
['part 0 reads', 'part 1 reads', 'solved', 'part 1 goes on', 'part 0 goes on']
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from deeppruning.errors import InputError


class _Abandoned(BaseException):
    """Ends the thread of a part after another part has failed."""


class Turns:
    """Runs the same work for several parts, one at a time, each in a thread of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = 0  # the part that is running
        self._place: str | None = None  # where parts are waiting
        self._arrived: set[int] = set()
        self._left = set(range(count))  # parts that have not ended
        self._backwards = False
        self._failure: BaseException | None = None
        self._go = [threading.Semaphore(0) for _ in range(count)]

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """The results of `work` for each part, in their order; the first failure of a part is raised."""
        if self.count == 1:
            return [work(0)]
        results: list[Any] = [None] * self.count

        def follow(part: int) -> None:
            self._go[part].acquire()
            try:
                if self._failure is None:
                    self.current = part
                    results[part] = work(part)
                    self._end_part(part)
            except _Abandoned:
                pass
            except BaseException as error:
                self._fail_all_parts(error)

        threads = [threading.Thread(target=follow, args=(part,), daemon=True) for part in range(self.count)]
        for thread in threads:
            thread.start()
        self._go[0].release()
        try:
            for thread in threads:
                thread.join()
        except BaseException as interruption:
            self._fail_all_parts(interruption)
            raise
        if self._failure is not None:
            raise self._failure
        return results

    def meet(self, place: str, settle: Callable[[], None]) -> None:
        """Wait until every part has reached this place; the last one calls `settle` and goes on first."""
        if self._place not in (None, place):
            raise self._parts_apart(place)
        self._place = place
        part = self.current
        self._arrived.add(part)
        if len(self._arrived) == self.count:
            settle()
            self._arrived.clear()
            self._place = None
            self._backwards = not self._backwards  # the last part goes on: what it reads is in the cache
            return
        self._wake_next_part()
        self._go[part].acquire()
        if self._failure is not None:
            raise _Abandoned
        self.current = part

    def _end_part(self, part: int) -> None:
        """A part has run to its end: the next one goes on."""
        if self._arrived:
            raise self._parts_apart("the end")
        self._left.discard(part)
        if self._left:
            self._wake_next_part()

    def _wake_next_part(self) -> None:
        waiting = self._left - self._arrived
        self._go[max(waiting) if self._backwards else min(waiting)].release()

    def _fail_all_parts(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        for gate in self._go:
            gate.release()

    def _parts_apart(self, place: str) -> InputError:
        return InputError(
            f"the network takes different ways for different inputs ({self._place} and {place}): "
            "refit needs inputs that all run the same layers; give fewer of them"
        )
