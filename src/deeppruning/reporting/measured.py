"""What was measured of a network: its latency, and how sure its test error is.

Latencies are those of `deeppruning bench`, or else those of the run's end.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeppruning.reporting.chance import wilson
from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts

# How a run measures at its end, by the facts that tell of it.
BRIEFLY = {
    facts.LATENCY.key: "as exported, one input, one thread",
    facts.LATENCY_LOADED.key: f"{facts.AS_LOADED}, one input, one thread",
}
REPEATS = 1.25  # a speed is known where the ends of its 95 % interval differ by no more than this factor


@dataclass(frozen=True)
class Speed:
    """How many times as fast as the original a network is, and between which limits in 95 of 100 cases."""

    ratio: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether it repeats well enough to be told to people as a figure."""
        return self.high <= REPEATS * self.low


def measured(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"networks": {role: {"latency_ms": {how: {"median": 1.2, "spread": 0.1}}}}}, None where nothing was."""
    bench, brief = kept.get(facts.BENCH.key), {key: kept.get(key) for key in BRIEFLY}
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        return bench
    networks: dict[str, Any] = {}
    for key, times in brief.items():
        for role, seconds in (times if isinstance(times, dict) else {}).items():
            timings = networks.setdefault(role, {"latency_ms": {}})["latency_ms"]
            timings[BRIEFLY[key]] = {"median": 1000 * seconds}
    return {"networks": networks} if networks else None


def latency_ms(kept: Mapping[str, Any], role: str, *, loaded: bool = False) -> float | None:
    """Milliseconds of one network, as they were measured first: one input in PyTorch, unless told otherwise.

    In deployment form, as it is exported, or `loaded`, as `dp.load` returns it.

    >>> latency_ms({facts.LATENCY.key: {"thin": 0.0025}}, "thin")
    2.5
    """
    timing = _first_timing(kept, role, loaded=loaded)
    return None if timing is None else float(timing["median"])


def speed(kept: Mapping[str, Any], role: str, *, loaded: bool = False) -> Speed | None:
    """The speed that goes with `latency_ms`; one that was measured in too few rounds may be anything."""
    timing, original = (_first_timing(kept, name, loaded=loaded) for name in (role, ORIGINAL))
    if timing is None or original is None or not timing["median"]:
        return None
    ratio = original["median"] / timing["median"]
    if "runs" not in timing:  # at a run's end: the least of many in turns, which other work cannot lower
        return Speed(ratio, ratio, ratio)
    ends = [timing.get(end) for end in ("speed_low", "speed_high")]
    known = [float(end) for end in ends if isinstance(end, int | float) and 0 < end < math.inf]
    return Speed(ratio, *known) if len(known) == 2 else Speed(ratio, 0.0, math.inf)


def _first_timing(kept: Mapping[str, Any], role: str, *, loaded: bool) -> Mapping[str, Any] | None:
    found = (measured(kept) or {"networks": {}})["networks"].get(role)
    timings: Mapping[str, Any] = (found.get("latency_ms") if isinstance(found, dict) else None) or {}
    medians = {how: one.get("median") for how, one in timings.items() if isinstance(one, dict)}
    known = (
        how
        for how, one in medians.items()
        if isinstance(one, int | float) and math.isfinite(one) and (facts.AS_LOADED in how) is loaded
    )
    return next((dict(timings[how]) for how in known), None)


def with_evidence(
    role: str, figures: Mapping[str, Any] | None, kept: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A network's figures with its latency, and its test error as a count of images and its 95 % interval."""
    if figures is None:
        return None
    error, images = figures.get("test_error"), kept.get(facts.TEST_IMAGES.key)
    wrong = round(error * images) if images and error is not None and 0.0 <= error <= 1.0 else None
    return {
        **figures,
        "latency_ms": latency_ms(kept, role),
        "loaded_ms": latency_ms(kept, role, loaded=True),
        "wrong": wrong,
        "interval": None if wrong is None or images is None else wilson(wrong, images),
    }
