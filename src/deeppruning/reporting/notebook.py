"""The plot of a run's candidates as markup, for a notebook."""

from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.reporting.plots import population


def candidates_svg(run_dir: Path) -> str:
    """Every candidate, error against cost, as SVG; empty where there is nothing to draw any more."""
    try:
        drawing = population(collect(run_dir))
    except RunError:  # the folder was moved, deleted or damaged: a result is shown all the same
        return ""
    return "" if drawing is None else drawing.svg()
