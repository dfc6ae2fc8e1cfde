"""Finished runs of a second or so, for the tests of export and bench."""

import shutil
from pathlib import Path

import torch

from cli_calls import call
from cli_search import arguments, trained
from search_helpers import STORED_RUN, TinyNet

__all__ = ["TinyNet", "names_a_place", "own_class_run", "python_run"]


def own_class_run(folder: Path) -> Path:
    """A run of the command line on a network from the user's own file."""
    spec, weights = trained(folder)
    call("prune", *arguments(spec, weights, folder / "run", "--quiet"))
    return folder / "run"


def python_run(folder: Path) -> Path:
    """A run that was started from Python with `TinyNet`."""
    return Path(shutil.copytree(STORED_RUN, folder / "run"))


def names_a_place(path: Path, *folders: Path) -> bool:
    """Whether a file says where it was made: in one of these folders, or on this machine at all."""
    places = (*folders, Path.cwd(), Path.home(), Path(torch.__file__).parent)
    content = path.read_bytes()
    return any(str(place).encode() in content for place in places if len(str(place)) > 1)
