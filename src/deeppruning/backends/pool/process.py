"""One worker process of a pool as the pool sees it: the way to it, the job it has, how long it is silent."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic

from deeppruning.backends.base import Key, worker_name
from deeppruning.backends.pool.channel import Channel
from deeppruning.backends.pool.worker import BOOTSTRAP, farewell_signal

# glibc would give large freed blocks back to the system at every step and ask for them anew at the next.
_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TIME_TO_DIE = 10.0


@dataclass(eq=False)
class Errand(Generic[Key]):
    """An item on its way."""

    key: Key
    kind: Hashable
    request: bytes
    attempts: int = 0
    started: float = 0.0


class Worker:
    """A process, the channel to it, and the job it has."""

    def __init__(self, parcel: int, threads: int) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.job: Errand[Any] | None = None
        self.ready = False
        self.silent = 0.0  # seconds it was waited for since it was last heard or given a job
        with theirs:
            fds = (theirs.fileno(), parcel)
            numbers = (farewell_signal(), *fds, os.getpid(), threads)
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, json.dumps(sys.path), *(str(int(n)) for n in numbers)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=_KEEP_FREED_MEMORY | os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)),
                start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone, which decides
            )
        self.name = worker_name(self.process.pid)

    def kill(self) -> str:
        """End the process if it has not ended; says how it ended."""
        self.process.kill()
        self.channel.close()
        try:
            code = self.process.wait(_TIME_TO_DIE)
        except subprocess.TimeoutExpired:  # in the hands of the system, for example of a disk that is gone
            return "killed, and not gone yet"
        return f"signal {-code}" if code < 0 else f"exit code {code}"
