"""Measured latencies: is it really faster?"""

from typing import Any

from deeppruning.reporting.measured import measured
from deeppruning.reporting.section import SECTIONS, Data, Section
from deeppruning.roles import ORIGINAL, in_order
from deeppruning.runs.facts import INT8


def _int8(kept: Data) -> dict[str, Any] | None:
    """Networks in int8 in the order of the page's other tables."""
    found = kept.get(INT8.key)
    if not found:
        return None
    names = dict.fromkeys((ORIGINAL, *in_order(found), *found))
    return {name: found[name] for name in names if name in found}


SECTIONS.add(
    Section(
        "bench",
        lambda source, data: {"bench": measured(source.facts), "int8": _int8(source.facts)},
    ),
    place=50,
)
