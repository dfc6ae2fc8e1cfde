"""`deeppruning watch`: the page of a run in the browser, live while the run is in progress."""

import os
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

import click

from deeppruning.cli.options.run import run_argument
from deeppruning.errors import RunError
from deeppruning.reporting.server import LOOPBACK, ReportServer, check_address
from deeppruning.runs.folder import CONFIG, refuse_occupied

PAUSE = 0.5  # seconds between two looks for a run


@click.command()
@run_argument
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to serve on. [a free one]")
@click.option("--host", default="127.0.0.1", help="Address to serve on. [127.0.0.1]")
@click.option("--open/--no-open", "open_page", default=True, help="Open the page in a browser. [true]")
def watch(run: Path, port: int, host: str, open_page: bool) -> None:
    """Serve the report of RUN and update it live, until Ctrl-C; the run itself is not affected.

    If the run does not exist yet (its network may still be training), the command waits for it. Only this
    machine can open the page unless --host is given; there is no password.

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


def wait_for_run(path: Path, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> None:
    """Return once the folder holds a run; a folder in which none can start is refused.

    A network without weights is trained first, and the folder is made after that.
    """
    waiting = False
    while not _is_run_there(path):
        if not waiting:
            say(f"waiting for a run in {path}: there is none yet (Ctrl-C stops)")
            waiting = True
        pause(PAUSE)


def _is_run_there(path: Path) -> bool:
    """Whether the folder holds a run; one in which none can start is refused."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file, not a run folder; give the folder that a run is made in")
    try:
        refuse_occupied(path)
    except RunError:
        if not (path / CONFIG).is_file():  # the folder holds something else, so no run can start in it
            raise
        return True
    return False


def _has_screen() -> bool:
    """Whether a browser window can open; otherwise a text browser would take over the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
