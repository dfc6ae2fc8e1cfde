"""Finished runs of a second or so, for the tests of export and bench."""

import shutil
from pathlib import Path

from click.testing import CliRunner

from cli_search import arguments, trained
from deeppruning.cli.main import cli
from search_helpers import TinyNet

__all__ = ["TinyNet", "own_class_run", "python_run"]


def own_class_run(folder: Path) -> Path:
    """A run of the command line on a network from the user's own file."""
    spec, weights = trained(folder)
    done = CliRunner().invoke(cli, ["prune", *arguments(spec, weights, folder / "run", "--quiet")])
    assert done.exit_code == 0, done.output
    return folder / "run"


def python_run(folder: Path) -> Path:
    """A run that was started from Python with `TinyNet`."""
    fixture = Path(__file__).parent / "fixtures" / "run-format-1"
    return Path(shutil.copytree(fixture, folder / "run"))
