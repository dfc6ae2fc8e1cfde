"""Remove what killed processes leave behind: partial files and scratch folders.

A process holds a lock on each of its files, which the system releases when the process ends: a file that can
be locked is no longer in use.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.partial")  # as `atomic` names them
_SCRATCH = "deeppruning-scratch-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder; if the process is killed, `remove_leftovers` removes it later."""
    while True:
        # Until it is locked it may be taken for a leftover, and be removed.
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH))
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # without locks it looks like one in use, and stays after a kill
            fcntl.flock(handle, fcntl.LOCK_SH)
        if path.exists():
            break
        os.close(handle)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def remove_leftovers(run_dir: Path) -> list[Path]:
    """Remove partial files in a run's folder, and scratch folders; returns what was removed."""
    removed = []
    for folder, _, names in os.walk(run_dir):
        for path in (Path(folder) / name for name in names if _PARTIAL.fullmatch(name)):
            if not path.is_symlink() and _is_abandoned(path):
                with suppress(OSError):
                    path.unlink()
                    removed.append(path)
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        if path.is_dir() and not path.is_symlink() and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def _is_abandoned(path: Path) -> bool:
    """Whether this user owns it and no process has locked it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle).st_uid == os.getuid()
    except OSError:
        return False
    finally:
        os.close(handle)
