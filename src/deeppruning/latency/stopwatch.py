"""Timing calls on a machine that also does other things."""

import time
from collections.abc import Callable, Sequence

Forward = Callable[[], object]

WARM_UP = 3
TURNS, FEWEST_TURNS = 25, 5
SECONDS = 20.0  # after which no further turn is begun, given the fewest


def quickest(forward: Forward, *, seconds: float = 0.02, most: int = 30, fewest: int = 3) -> float:
    """The least seconds of a short call: what else the machine does only adds to them."""
    forward()
    begin = time.perf_counter()
    found: list[float] = []
    while len(found) < fewest or (len(found) < most and time.perf_counter() - begin < seconds):
        found.append(_seconds(forward))
    return min(found)


def in_turns(forwards: Sequence[Forward], turns: int = TURNS) -> list[float]:
    """The least seconds of each call, one a turn, so that busy moments fall on all alike."""
    for forward in forwards:
        for _ in range(WARM_UP):
            forward()
    begin = time.perf_counter()
    found = [float("inf")] * len(forwards)
    for turn in range(turns):
        if turn >= FEWEST_TURNS and time.perf_counter() - begin > SECONDS:
            break
        for place, forward in enumerate(forwards):
            found[place] = min(found[place], _seconds(forward))
    return found


def _seconds(forward: Forward) -> float:
    start = time.perf_counter()
    forward()
    return time.perf_counter() - start
