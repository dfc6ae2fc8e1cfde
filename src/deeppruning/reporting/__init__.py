"""The report of a run: one page to choose a network on, and the same plots as files for papers."""

from deeppruning.reporting.page import write_report
from deeppruning.reporting.plots import missing_plots_line, write_plots
from deeppruning.reporting.sections.rivals import write_rivals_plot

__all__ = [
    "missing_plots_line",
    "write_plots",
    "write_report",
    "write_rivals_plot",
]
