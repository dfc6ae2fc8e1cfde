"""Latencies that were measured in a run: those of `deeppruning bench`, or else those of the run's end."""

import math
from collections.abc import Mapping
from typing import Any

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
