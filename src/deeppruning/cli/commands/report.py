"""`deeppruning report`: the page of a run and its plots, written into the run's folder."""

from pathlib import Path

import click

from deeppruning.cli.options.run import run_argument
from deeppruning.reporting import missing_plots_line, write_report


@click.command()
@run_argument
def report(run: Path) -> None:
    """Write RUN/report.html, the page on which to choose a network, and plots for papers into RUN/plots/.

    The page is one file that works offline. An unfinished run has a page, too; to follow it live, use
    `deeppruning watch`. The plots (objective space, layers, fine-tuning) are written as SVG and PNG; they
    need matplotlib.

    \b
    Example:
      deeppruning report runs/r56
    """
    click.echo(str(write_report(run)))
    if line := missing_plots_line():
        click.echo(line, err=True)
