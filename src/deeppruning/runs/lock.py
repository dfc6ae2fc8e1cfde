"""One process at a time works on a run: a lock that the system releases however its holder ends."""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.runs.records import now


class RunLock:
    """An exclusive lock on a file, taken when made; the file says who holds it and since when."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a+")
        except OSError as error:
            raise RunError(f"{path} cannot be opened ({error.strerror}); check its permissions") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise RunError(
                f"{path.parent} is in use by {holder}; wait until it is done, or stop it and try again"
            ) from error
        with suppress(OSError):  # the lock holds even where a full disk leaves no room for the note
            self._file.truncate(0)
            note = f"process {os.getpid()} on {socket.gethostname()} since {now()}\n"
            os.write(self._file.fileno(), note.encode())

    def release(self) -> None:
        """Let others have it; the file stays, because removing it would let two in at once."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()
