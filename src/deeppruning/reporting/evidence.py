"""What was measured of a network: latency and speed-up, and the confidence interval of its test error.

Latencies are those of `deeppruning bench` or, without it, those measured at the end of the run.

>>> low, high = wilson(4, 360)
>>> f"{low:.4f} {high:.4f}"
'0.0043 0.0282'
>>> within_noise(2, 4), within_noise(661, 1019)
(True, False)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts

# What is measured at the end of a run, by the facts that hold it.
AT_THE_END = {
    facts.LATENCY.key: "as exported, one input, one thread",
    facts.LATENCY_LOADED.key: f"{facts.AS_LOADED}, one input, one thread",
}
REPEATS = 1.25  # a speed is certain if the ends of its 95 % interval differ by at most this factor
Z95 = 1.959964
# A difference that chance exceeds at least this often is noise. One standard error, not the usual two: here
# "no difference" is what is acted on, and a small test set must not prove too much.
NOISE = 0.32


def wilson(wrong: int, images: int) -> tuple[float, float]:
    """Wilson's 95 % confidence interval of the true error."""
    share, squared = wrong / images, Z95**2
    middle = (share + squared / (2 * images)) / (1 + squared / images)
    half = Z95 * math.sqrt(share * (1 - share) / images + squared / (4 * images**2)) / (1 + squared / images)
    return max(0.0, middle - half), min(1.0, middle + half)


def within_noise(first: int, second: int) -> bool:
    """Whether two counts of wrong answers on the same images are within noise of each other."""
    return chance_of(first, second) >= NOISE


def chance_of(first: int, second: int) -> float:
    """How often two equally good networks differ at least this much, each error falling on either of them.

    Exact for few errors, where a normal curve would be far off.

    >>> chance_of(0, 2), chance_of(5, 5)
    (0.5, 1.0)
    """
    total, fewer = first + second, min(first, second)
    if total > 200:  # the sum is long, and the curve is right
        return math.erfc(max(0.0, abs(first - second) - 1) / math.sqrt(2 * total))
    tail = sum(math.comb(total, wrong) for wrong in range(fewer + 1))
    return min(1.0, tail / 2.0 ** (total - 1))


@dataclass(frozen=True)
class Speed:
    """How many times as fast as the original a network is, with a 95 % confidence interval."""

    ratio: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether it repeats well enough to be shown as a number."""
        return self.high <= REPEATS * self.low


def measured(recorded: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"networks": {role: {"latency_ms": {form: {"median": 1.2, "spread": 0.1}}}}}; None without any."""
    bench = recorded.get(facts.BENCH.key)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        return bench
    networks: dict[str, Any] = {}
    for key, form in AT_THE_END.items():
        for role, seconds in recorded.get(key, {}).items():
            timings = networks.setdefault(role, {"latency_ms": {}})["latency_ms"]
            timings[form] = {"median": 1000 * seconds}
    return {"networks": networks} if networks else None


def latency_ms(recorded: Mapping[str, Any], role: str, *, loaded: bool = False) -> float | None:
    """Milliseconds of one network, by its first measurement: one input in PyTorch, unless stated otherwise.

    In deployment form, as it is exported, or `loaded`, as `dp.load` returns it.

    >>> latency_ms({facts.LATENCY.key: {"thin": 0.0025}}, "thin")
    2.5
    """
    timing = _timing_of_network(recorded, role, loaded=loaded)
    return None if timing is None else float(timing["median"])


def speed(recorded: Mapping[str, Any], role: str, *, loaded: bool = False) -> Speed | None:
    """The speed that goes with `latency_ms`; after too few rounds it may be anything."""
    timing, original = (_timing_of_network(recorded, name, loaded=loaded) for name in (role, ORIGINAL))
    if timing is None or original is None or not timing["median"]:
        return None
    ratio = original["median"] / timing["median"]
    if "runs" not in timing:  # at a run's end: the fastest of many, which other work cannot make faster
        return Speed(ratio, ratio, ratio)
    ends = [timing.get(end) for end in ("speed_low", "speed_high")]
    limits = [float(end) for end in ends if isinstance(end, int | float) and 0 < end < math.inf]
    return Speed(ratio, *limits) if len(limits) == 2 else Speed(ratio, 0.0, math.inf)


def _timing_of_network(recorded: Mapping[str, Any], role: str, *, loaded: bool) -> dict[str, Any] | None:
    network = (measured(recorded) or {"networks": {}})["networks"].get(role)
    timings: Mapping[str, Any] = (network.get("latency_ms") if isinstance(network, dict) else None) or {}
    for form, timing in timings.items():
        median = timing.get("median") if isinstance(timing, dict) else None
        if isinstance(median, int | float) and math.isfinite(median) and (facts.AS_LOADED in form) is loaded:
            return dict(timing)
    return None


def with_evidence(
    role: str, figures: Mapping[str, Any] | None, recorded: Mapping[str, Any]
) -> dict[str, Any] | None:
    """A network's figures with its latency, and its test error as a count of images and its 95 % interval."""
    if figures is None:
        return None
    error, images = figures.get("test_error"), recorded.get(facts.TEST_IMAGES.key)
    wrong = round(error * images) if images and error is not None and 0.0 <= error <= 1.0 else None
    return {
        **figures,
        "latency_ms": latency_ms(recorded, role),
        "loaded_ms": latency_ms(recorded, role, loaded=True),
        "wrong": wrong,
        "interval": None if wrong is None or images is None else wilson(wrong, images),
    }
