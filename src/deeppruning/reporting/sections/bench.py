"""Measured latencies: is it really faster?"""

from collections.abc import Mapping
from typing import Any

from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.runs import facts


def _bench(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Latencies: {"networks": {role: {"latency_ms": {how: {"median": 1.2, "spread": 0.1}}}}}.

    Those of `deeppruning bench`, or else the seconds for one input that a run measures at its end.
    """
    bench, brief = kept.get(facts.BENCH.key), kept.get(facts.LATENCY.key)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        return bench
    if not isinstance(brief, dict):
        return None
    how = "one input, one thread"
    return {
        "networks": {
            role: {"latency_ms": {how: {"median": 1000 * seconds}}} for role, seconds in brief.items()
        }
    }


SECTIONS.add(Section("bench", lambda source, data: {"bench": _bench(source.facts)}), place=50)
