"""Replace a file whole or not at all, whatever interrupts the writing.

>>> import tempfile
>>> target = Path(tempfile.mkdtemp()) / "note.txt"
>>> write_atomically(target, b"kept")
>>> target.read_bytes()
b'kept'
"""

import errno
import fcntl
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deeppruning.errors import RunError

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EFBIG: "the file would exceed the size limit of this process; raise it with `ulimit -f`",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission denied; choose a folder you may write to",
}


def replace_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it to disk, then put it in place.

    A reader sees the old file or the new one, never a part. If anything fails, the old file is left as
    it was and the temporary one is removed; a failure of the disk is raised as RunError, any other
    error of `write` as it is (libraries that hide the disk's errors do better to hand their bytes to
    `write_atomically`).
    """
    # Same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    handle = -1
    try:
        # Writers such as safetensors make private files; the user's umask decides here instead.
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # tells a file at work from one that a killed process left
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        mode = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(mode)
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"{error.strerror or error}; check the folder and try again")
        kept = "; the previous file is untouched" if path.exists() else ""
        raise RunError(f"cannot write {path}: {reason}{kept}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
        if handle >= 0:
            os.close(handle)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the contents of `path` by `data`, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    replace_atomically(path, write)


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
