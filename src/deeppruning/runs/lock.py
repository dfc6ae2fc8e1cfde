"""One process at a time works on a run: a lock that the system releases however its holder ends.

It is taken on the folder itself, which stays as long as the run does: whoever deletes the lock file, which
says who holds the lock, lets no second process in. The file is locked as well: some network drives lock
no folders.
"""

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.runs.records import now

# What a file system says that has no locks, or none on folders.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
_NOTE_BYTES = 200


class RunLock:
    """An exclusive lock on a folder, taken when made; the file in it says who holds it and since when."""

    def __init__(self, path: Path) -> None:
        self._handles: list[int] = []
        self._path = path
        try:
            self._take()
        except BaseException:
            self._close()
            raise
        with suppress(OSError):  # the lock holds even where a full disk leaves no room for the note
            os.ftruncate(self._handles[-1], 0)
            note = f"process {os.getpid()} on {socket.gethostname()} since {now()}\n"
            os.write(self._handles[-1], note.encode())

    def _take(self) -> None:
        path = self._path
        try:
            self._handles.append(os.open(path.parent, os.O_RDONLY))
            with suppress_errors(*_NO_LOCKS):
                lock(self._handles[-1])
            self._handles.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666))
            lock(self._handles[-1])
        except BlockingIOError as error:
            raise RunError(
                f"{path.parent} is in use by {self._holder()}; "
                "wait until it is done, or stop it and try again"
            ) from error
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise RunError(
                    f"the file system of {path.parent} has no locks ({error.strerror}), so nothing would "
                    "keep two processes from working on one run; choose a folder on another disk"
                ) from error
            raise RunError(f"{path} cannot be opened ({error.strerror}); check its permissions") from error

    def _holder(self) -> str:
        with suppress(OSError), self._path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_NOTE_BYTES).strip() or "another process"
        return "another process"

    def release(self) -> None:
        """Let others have it; the file stays, because removing it would let two in at once."""
        if self._handles:
            with suppress(OSError):
                os.ftruncate(self._handles[-1], 0)
        self._close()

    def _close(self) -> None:
        while self._handles:
            os.close(self._handles.pop())


def lock(handle: int) -> None:
    """Lock an open file or folder, or raise what the system says."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class suppress_errors:
    """Leave out errors of the system with these numbers."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, OSError) and error.errno in self._numbers
