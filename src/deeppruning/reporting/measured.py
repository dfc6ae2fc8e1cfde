"""What was measured of a network: its latency, and how sure its test error is.

Latencies are those of `deeppruning bench`, or else those of the run's end.
"""

import math
from collections.abc import Mapping
from typing import Any

from deeppruning.reporting.chance import wilson
from deeppruning.runs import facts

BRIEFLY = "one input, one thread"  # how a run measures at its end


def measured(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"networks": {role: {"latency_ms": {how: {"median": 1.2, "spread": 0.1}}}}}, None where nothing was."""
    bench, brief = kept.get(facts.BENCH.key), kept.get(facts.LATENCY.key)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        return bench
    if not isinstance(brief, dict):
        return None
    return {
        "networks": {
            role: {"latency_ms": {BRIEFLY: {"median": 1000 * seconds}}} for role, seconds in brief.items()
        }
    }


def latency_ms(kept: Mapping[str, Any], role: str) -> float | None:
    """Milliseconds of one network, as they were measured first: one input in PyTorch, unless told otherwise.

    >>> latency_ms({facts.LATENCY.key: {"thin": 0.0025}}, "thin")
    2.5
    """
    found = (measured(kept) or {"networks": {}})["networks"].get(role)
    timings = found.get("latency_ms") if isinstance(found, dict) else None
    medians = [one.get("median") for one in (timings or {}).values() if isinstance(one, dict)]
    return next((one for one in medians if isinstance(one, int | float) and math.isfinite(one)), None)


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
        "wrong": wrong,
        "interval": None if wrong is None or images is None else wilson(wrong, images),
    }
