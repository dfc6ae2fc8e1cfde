"""`deeppruning report`: the page of a run and its plots, written into the run's folder."""

from pathlib import Path

import click

from deeppruning.reporting import missing_plots_line, write_report


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
def report(run: Path) -> None:
    """Write RUN/report.html, the page to choose a network on, and RUN/plots/ for papers.

    The page is one file that needs no network: open it, mail it, keep it. It works for a run that is
    still going on, too; to see such a run live, use `deeppruning watch`. The plots (objective space,
    layers, fine-tuning) are written as SVG and PNG; they need matplotlib.

    \b
    Example:
      deeppruning report runs/r56
    """
    click.echo(str(write_report(run)))
    if line := missing_plots_line():
        click.echo(line, err=True)
