"""Measured latencies: is it really faster?"""

from deeppruning.reporting.measured import measured
from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.runs.facts import INT8

SECTIONS.add(
    Section(
        "bench",
        lambda source, data: {"bench": measured(source.facts), "int8": source.facts.get(INT8.key)},
    ),
    place=50,
)
