"""Seconds of calls, timed in turns; and the times of layers cached on this machine, in the user's folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from deeppruning.errors import DAMAGE, RunError
from deeppruning.latency.layers import LayerShape
from deeppruning.latency.runtimes import Forward, Runtime
from deeppruning.system.files import cache_folder, write_atomically
from deeppruning.system.versions import processor

LAYER_RUNS, LAYER_SECONDS = (3, 30), 0.02  # of a short call: at least and at most, and until when
RUNS = 4  # per turn
TURNS, FEWEST_TURNS = 8, 2
SHORTEST = 0.5  # seconds that the turns take at least, so that a busy moment of the machine passes
SECONDS = 20.0  # after which no further turn begins, apart from the fewest
LARGEST_FILE = 1 << 26  # bytes of a cache file that is read
# The fastest of several calls this short was not interrupted, and processor clocks are too coarse for them.
_UNINTERRUPTED = 1e-3
# Windows counts processor time in steps of 16 ms, which says nothing about a forward pass.
_COUNTS_PROCESSOR_TIME = time.get_clock_info("process_time").resolution < 1e-6
_RESTRICTING = ("ONEDNN_MAX_CPU_ISA",)  # environment variables that make PyTorch avoid some instructions


def quickest(forward: Forward, *, on_cpu: bool = True) -> float:
    """The seconds of a short call: the fastest of several runs, as other work can only slow it down."""
    forward()
    begin = time.perf_counter()
    times: list[float] = []
    fewest, most = LAYER_RUNS
    while len(times) < fewest or (len(times) < most and time.perf_counter() - begin < LAYER_SECONDS):
        times.append(_seconds_of_call(forward, on_cpu))
    return min(times)


def in_turns(forwards: Sequence[Forward], turns: int | None = None, *, on_cpu: bool = True) -> list[float]:
    """The fastest of several runs of each call, in seconds.

    Without a number there are as many turns as it takes for busy moments to pass. Each call is made a few
    times per turn, because libraries keep what they prepared for the last thousand layers only: of many
    networks in turns, each would be prepared again at every call.
    """
    shortest = SHORTEST if turns is None else 0.0
    times = time_in_turns(
        forwards,
        turns or TURNS,
        fewest=FEWEST_TURNS,
        seconds=SECONDS,
        shortest=shortest,
        runs=RUNS,
        on_cpu=on_cpu,
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
    on_cpu: bool = True,
) -> list[list[float]]:
    """Seconds of each call, `runs` of them per turn, so that a busy moment of the machine falls on all alike.

    `on_cpu` is false for calls that wait for another device. Ends after the turns and at least the `shortest`
    time; or after `seconds`, given the `fewest` turns.
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
            times[place] += [_seconds_of_call(forwards[place], on_cpu) for _ in range(runs)]
    raise AssertionError("count() never ends")


def _seconds_of_call(forward: Forward, on_cpu: bool) -> float:
    """The seconds of one call; on a CPU at most the processor time that it took.

    On an idle machine they are the same with one thread, and with several the processor time is longer. On a
    busy one a call of some milliseconds is interrupted by other programs, a long call more often than a short
    one, so that every thin network would seem faster than it is.
    """
    used, start = time.process_time(), time.perf_counter()
    forward()
    passed, used = time.perf_counter() - start, time.process_time() - used
    counted = on_cpu and _COUNTS_PROCESSOR_TIME and passed > _UNINTERRUPTED and used > 0
    return min(passed, used) if counted else passed


@dataclass
class LayerTimes:
    """Cached seconds by shape and extents; a file that is missing or damaged counts as empty."""

    path: Path
    about: dict[str, Any]
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime) -> LayerTimes:
        """The times of a runtime, in its version, on this processor."""
        about = {"runtime": runtime.version, "processor": processor(), **asdict(runtime.conditions)}
        about |= {name: os.environ[name] for name in _RESTRICTING if name in os.environ}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        path = cache_folder() / "latency" / f"{digest}.json"
        return cls(path, about, _read_cached_times(path))

    def get(self, shape: LayerShape, extents: tuple[int, int], measure: Callable[[], float]) -> float:
        """The time of a layer, measured if it is not cached."""
        if not self.knows(shape, extents):
            self.put(shape, extents, measure())
        return self.at(shape, extents)

    def at(self, shape: LayerShape, extents: tuple[int, int]) -> float:
        """The time of a layer that is cached."""
        return self.seconds[_cache_key(shape)][_cache_key(extents)]

    def knows(self, shape: LayerShape, extents: tuple[int, int]) -> bool:
        """Whether the time of this layer is cached."""
        return _cache_key(extents) in self.seconds.get(_cache_key(shape), {})

    def put(self, shape: LayerShape, extents: tuple[int, int], seconds: float) -> None:
        """Cache the time of a layer."""
        self.seconds.setdefault(_cache_key(shape), {})[_cache_key(extents)] = float(f"{seconds:.4g}")

    def save(self) -> None:
        """Write the cache, with what other processes added meanwhile; a failure to write is ignored."""
        merged = _read_cached_times(self.path)
        for shape, times in self.seconds.items():
            merged[shape] = {**merged.get(shape, {}), **times}
        with suppress(OSError, RunError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, json.dumps({"about": self.about, "seconds": merged}).encode())


def _read_cached_times(path: Path) -> dict[str, dict[str, float]]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            return {}
        table = json.loads(path.read_bytes())["seconds"]
        return {
            str(shape): {str(key): _positive_seconds(value) for key, value in times.items()}
            for shape, times in table.items()
        }
    except (OSError, *DAMAGE):
        return {}


def _cache_key(part: LayerShape | tuple[int, int]) -> str:
    return json.dumps(asdict(part)) if isinstance(part, LayerShape) else "x".join(map(str, part))


def _positive_seconds(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"{value} is not a time")
    return seconds
