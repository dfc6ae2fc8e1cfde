"""Timing calls on a machine that also does other things."""

import time
from collections.abc import Callable, Sequence
from itertools import count

Forward = Callable[[], object]

RUNS = 4  # a turn
TURNS, FEWEST_TURNS = 8, 2
SHORTEST = 0.5  # seconds that turns go on at least: another's busy moment is to pass
SECONDS = 20.0  # after which no further turn is begun, given the fewest


def quickest(forward: Forward, *, seconds: float = 0.02, most: int = 30, fewest: int = 3) -> float:
    """The least seconds of a short call: what else the machine does only adds to them."""
    forward()
    begin = time.perf_counter()
    found: list[float] = []
    while len(found) < fewest or (len(found) < most and time.perf_counter() - begin < seconds):
        found.append(_seconds(forward))
    return min(found)


def in_turns(forwards: Sequence[Forward], turns: int | None = None) -> list[float]:
    """The least seconds of each call, some a turn, so that busy moments fall on all alike.

    Without a number there are as many turns as it takes for such moments to pass. Some calls, because
    libraries keep what they prepared for the last thousand layers only: of many networks in turns, each would
    be prepared anew at every call.
    """
    begin = time.perf_counter()
    found = [float("inf")] * len(forwards)
    for turn in count():
        passed = time.perf_counter() - begin
        enough = turn >= TURNS and passed > SHORTEST if turns is None else turn >= turns
        if enough or (turn >= FEWEST_TURNS and passed > SECONDS):
            break
        for place, forward in enumerate(forwards):
            found[place] = min(found[place], *(_seconds(forward) for _ in range(RUNS)))
    return found


def _seconds(forward: Forward) -> float:
    start = time.perf_counter()
    forward()
    return time.perf_counter() - start
