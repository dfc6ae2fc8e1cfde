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
    """The fastest of several runs of each call, in seconds.

    Without a number there are as many turns as it takes for busy moments to pass. Each call is made a few
    times per turn, because libraries keep what they prepared for the last thousand layers only: of many
    networks in turns, each would be prepared anew at every call.
    """
    shortest = SHORTEST if turns is None else 0.0
    times = time_in_turns(
        forwards, turns or TURNS, fewest=FEWEST_TURNS, seconds=SECONDS, shortest=shortest, runs=RUNS
    )
    return [min(each) for each in times]


def time_in_turns(
    forwards: Sequence[Forward],
    turns: int,
    *,
    fewest: int,
    seconds: float,
    shortest: float = 0.0,
    runs: int = 1,
) -> list[list[float]]:
    """Seconds of each call, `runs` of them per turn, so that a busy moment of the machine falls on all alike.

    Ends after the turns and at least the `shortest` time; or after `seconds`, given the `fewest` turns.
    """
    begin = time.perf_counter()
    times: list[list[float]] = [[] for _ in forwards]
    places = list(range(len(forwards)))
    for turn in count():
        passed = time.perf_counter() - begin
        if (turn >= turns and passed >= shortest) or (turn >= fewest and passed > seconds):
            return times
        # Each comes first in turn: what ran before leaves its traces in the caches.
        shift = turn % len(places)
        for place in places[shift:] + places[:shift]:
            times[place] += [_seconds(forwards[place]) for _ in range(runs)]
    raise AssertionError("count() never ends")


def _seconds(forward: Forward) -> float:
    start = time.perf_counter()
    forward()
    return time.perf_counter() - start
