"""The report of a run: one page to choose a network on, and the same plots as files for papers."""

from deeppruning.report.page import write_report
from deeppruning.report.plots import write_plots
from deeppruning.report.rivals_plot import write_rivals_plot

__all__ = ["write_plots", "write_report", "write_rivals_plot"]
