"""`deeppruning watch`: the page of a run in the browser, live while the run goes on."""

import os
import sys
import webbrowser
from pathlib import Path

import click

from deeppruning.reporting.server import LOOPBACK, ReportServer, check_address
from deeppruning.reporting.standing import wait_for_run


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to serve at; 0 takes a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page in a browser, or not.")
def watch(run: Path, port: int, host: str, open_page: bool) -> None:
    """Serve the page of RUN and keep it live; the run itself is not disturbed. Ctrl-C stops.

    A run that is still being set up (its network may be in training) is waited for. Only this machine can
    see the page unless --host says otherwise; there is no password.

    \b
    Example:
      deeppruning watch runs/r56
      deeppruning watch runs/r56 --port 8000 --no-open
    """
    check_address(host, port)
    try:
        wait_for_run(run, click.echo)
    except KeyboardInterrupt:
        click.echo("stopped")
        return
    with ReportServer(run, host, port) as server:
        click.echo(f"{run} is shown at {server.address} (Ctrl-C stops)")
        if host not in LOOPBACK:
            click.echo("anyone who can reach this machine can see the page", err=True)
        if open_page and _has_screen():
            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            click.echo("stopped")


def _has_screen() -> bool:
    """Whether a browser window can appear; without one, a text browser would take the terminal over."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
