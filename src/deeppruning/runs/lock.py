"""One process at a time works on a run: a lock that the system releases however its holder ends.

The folder itself is locked, so that deleting the lock file, which says who holds the lock, lets no second
process in. The file is locked as well, because some network drives cannot lock folders.
"""

import errno
import fcntl
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.runs.records import now
from deeppruning.system.files import refuse_foreign_file

# Errors of a file system that has no locks, or none on folders.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_NOTE_BYTES = 200
_NOTE = re.compile(r"process (\d+) on (\S+) since \S+\s*")


class RunLock:
    """An exclusive lock on a folder, taken when made; the file in it says who holds it and since when."""

    def __init__(self, path: Path) -> None:
        self._handles: list[int] = []
        self._path = path
        try:
            self._take_lock()
        except BaseException:
            self._close_handles()
            raise
        with suppress(OSError):  # the lock holds even if a full disk has no room for the note
            os.ftruncate(self._handles[-1], 0)
            note = f"process {os.getpid()} on {socket.gethostname()} since {now()}\n"
            os.write(self._handles[-1], note.encode())

    def _take_lock(self) -> None:
        """Lock the folder and its lock file, and write down who holds them."""
        path = self._path
        try:
            self._handles.append(os.open(path.parent, os.O_RDONLY))
            try:
                lock(self._handles[-1])
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            # Not through a link, and without waiting for the other end of a pipe.
            careful = os.O_NOFOLLOW | os.O_NONBLOCK
            self._handles.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | careful, 0o666))
            self._refuse_foreign()
            lock(self._handles[-1])
        except BlockingIOError as error:
            raise RunError(
                f"{path.parent} is in use by {read_note(path) or 'another process'}; "
                "wait until it is done, or stop it and try again"
            ) from error
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise RunError(
                    f"the file system of {path.parent} has no locks ({error.strerror}), so nothing would "
                    "keep two processes from working on one run; choose a folder on another disk"
                ) from error
            if error.errno == errno.ELOOP:
                raise RunError(f"{path} is a link, it is not written to: remove it and try again") from error
            raise RunError(f"{path} cannot be opened ({error.strerror}); check its permissions") from error

    def _refuse_foreign(self) -> None:
        """The note overwrites the contents of the file, which must be a note or nothing."""
        refuse_foreign_file(self._path, os.fstat(self._handles[-1]))
        content = os.pread(self._handles[-1], _NOTE_BYTES + 1, 0)
        if content and not _NOTE.fullmatch(content.decode(errors="replace")):
            raise RunError(
                f"{self._path} is not a lock file of a run, it is not written to: move it away and try again"
            )

    def release(self) -> None:
        """Release the lock; the file stays, because removing it could let two processes in at once."""
        if self._handles:
            with suppress(OSError):
                os.ftruncate(self._handles[-1], 0)
        self._close_handles()

    def _close_handles(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def read_note(path: Path) -> str:
    """What a lock file says about its holder, or an empty text."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return os.read(handle, _NOTE_BYTES).decode(errors="replace").strip()
        finally:
            os.close(handle)
    return ""


def holder_of(note: str) -> tuple[int, str] | None:
    """Process id and host name in a note.

    >>> holder_of("process 12 on here since 2026-01-01T00:00:00+00:00")
    (12, 'here')
    """
    match = _NOTE.fullmatch(note)
    return None if match is None else (int(match[1]), match[2])


def lock(handle: int) -> None:
    """Lock an open file or folder, or raise an OSError."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
