"""`deeppruning report`: the page of a run and its plots, written into the run's folder."""

from pathlib import Path

import click

from deeppruning.cli.options.run import run_argument
from deeppruning.reporting import missing_plots_line, write_report


@click.command()
@run_argument
def report(run: Path) -> None:
    """Write the report of RUN, RUN/report.html, and plots for papers into RUN/plots/.

    The report shows all networks and helps to choose one. It is one file that works offline, and can be
    written before the run is finished; to follow a run live, use `deeppruning watch`. The plots (candidates,
    layers, fine-tuning) are SVG and PNG files; they need matplotlib.

    \b
    Example:
      deeppruning report runs/r56
    """
    click.echo(str(write_report(run)))
    if line := missing_plots_line():
        click.echo(line, err=True)
