"""Finished runs of a second or so, for the tests of export and bench."""

import shutil
from pathlib import Path

from cli_calls import call
from cli_search import arguments, trained
from search_helpers import STORED_RUN, TinyNet

__all__ = ["TinyNet", "own_class_run", "python_run"]


def own_class_run(folder: Path) -> Path:
    """A run of the command line on a network from the user's own file."""
    spec, weights = trained(folder)
    call("prune", *arguments(spec, weights, folder / "run", "--quiet"))
    return folder / "run"


def python_run(folder: Path) -> Path:
    """A run that was started from Python with `TinyNet`."""
    return Path(shutil.copytree(STORED_RUN, folder / "run"))
