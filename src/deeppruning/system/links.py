"""Writing in a folder that may come from someone else: no link that lies in it leads out of it.

Files that are put in place by a rename (see `atomic`) replace a link instead of following it; what is left
are the folders on the way to them, and the files that are written in place.
"""

import os
import stat
from pathlib import Path

from deeppruning.errors import RunError


def folder_within(root: Path, folder: Path) -> Path:
    """Make a folder below `root`, whatever is missing of it; refuse a link on the way from there.

    `root` itself is named by the user and may be a link.
    """
    path = root
    for part in folder.relative_to(root).parts:
        path = path / part
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            refuse_linked_folder(path)
            raise RunError(f"{path} cannot be made ({error.strerror}); check the folder") from error
        refuse_linked_folder(path)
    return path


def refuse_linked_folder(path: Path) -> None:
    """Raise unless this is a folder or nothing yet."""
    found = _entry(path)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise RunError(f"{path} is {what}, nothing is written there: remove it and try again")


def refuse_linked_file(path: Path) -> None:
    """Raise unless this is a file with no other name, which can be written in place, or nothing yet."""
    found = _entry(path)
    if found is not None:
        refuse_foreign_file(path, found)


def refuse_foreign_file(path: Path, found: os.stat_result) -> None:
    """Raise if what was found under a path is not a plain file, or is also a file somewhere else."""
    if stat.S_ISLNK(found.st_mode):
        what = "a link"
    elif not stat.S_ISREG(found.st_mode):
        what = "no file"
    elif found.st_nlink > 1:
        what = "a file that has a second name elsewhere (a hard link)"
    else:
        return
    raise RunError(f"{path} is {what}, it is not written to: put a copy in its place, or remove it")


def _entry(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
