"""Measured latencies: is it really faster?"""

from deeppruning.reporting.measured import measured
from deeppruning.reporting.section import SECTIONS, Section

SECTIONS.add(Section("bench", lambda source, data: {"bench": measured(source.facts)}), place=50)
