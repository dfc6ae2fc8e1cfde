"""Measured latencies: is it really faster?"""

from typing import Any

from deeppruning.reporting.measured import measured
from deeppruning.reporting.section import SECTIONS, Data, Section
from deeppruning.roles import ORIGINAL, SOLUTIONS
from deeppruning.runs.facts import INT8


def _int8(kept: Data) -> dict[str, Any] | None:
    """Networks in int8 in the order of the page's other tables."""
    found = kept.get(INT8.key)
    if not found:
        return None
    names = (*(name for name in (ORIGINAL, *SOLUTIONS) if name in found), *found)
    return {name: found[name] for name in dict.fromkeys(names)}


SECTIONS.add(
    Section(
        "bench",
        lambda source, data: {"bench": measured(source.facts), "int8": _int8(source.facts)},
    ),
    place=50,
)
