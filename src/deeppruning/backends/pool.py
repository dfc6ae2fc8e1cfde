"""A pool of local processes that survives the death of any of them.

>>> with PoolBackend(workers=2).open(lambda base, item: base + item, 10) as session:  # doctest: +SKIP
...     sorted(outcome.value for outcome in session.map([("a", 1), ("b", 2)]))
[11, 12]
"""

import json
import math
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import BinaryIO, cast

import torch

from deeppruning.backends.base import Backend, Item, Session, Shared, Value, answer_item, worker_name
from deeppruning.backends.limits import AUTO, OFF, Kind, Timeout, read_timeout, same_kind
from deeppruning.backends.parcel import pack, unpack
from deeppruning.backends.workers import LOOK_EVERY, Worker, WorkerSession, cannot_send
from deeppruning.errors import InputError
from deeppruning.system import allocator

_TIME_TO_START = 600.0  # seconds to import torch and unpack, on a busy machine with a slow disk
_TIME_TO_DIE = 10.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_CHUNK = 2**20
_LOOK_FOR_PARENT_EVERY = 0.5
LENGTH = struct.Struct("<Q")  # of the message that follows it
# Run with `python -c`, so that the user's script is not imported again and needs no main guard. The import
# path is the parent's, where the user's modules were found. First of all Linux is asked (PR_SET_PDEATHSIG) to
# send a signal when the parent ends, which works for a stopped process as well.
BOOTSTRAP = """
import ctypes, json, sys
path, farewell, *numbers = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(farewell), 0, 0, 0)
sys.path[:] = json.loads(path)
from deeppruning.backends.pool import serve
serve(*map(int, numbers))
"""


class PoolBackend(Backend):
    """Runs items in up to `workers` processes of `threads` torch threads each, started when needed.

    A worker that does not answer within `timeout` is killed: a number of seconds, "auto" (derived from the
    time that such items took so far) or "off".
    """

    def __init__(self, *, workers: int = 2, threads: int = 1, timeout: Timeout = AUTO) -> None:
        for name, value in (("workers", workers), ("threads", threads)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.workers = workers
        self.threads = threads
        self.timeout = read_timeout(timeout)

    def open(
        self, function: Callable[[Shared, Item], Value], context: Shared, kind: Kind = same_kind
    ) -> Session[Item, Value]:
        """Pack the function and its context once for all workers; none is started yet."""
        try:
            parcel = pack((function, context))
        except Exception as error:
            raise cannot_send("the function or its data", error) from error
        return _PoolSession(self, parcel, kind)

    def room(self) -> int:
        """The number of workers."""
        return self.workers


class _PoolSession(WorkerSession[Item, Value]):
    """A session over local worker processes."""

    def __init__(self, backend: PoolBackend, parcel: int, kind: Kind) -> None:
        super().__init__(kind, backend.timeout)
        self._backend = backend
        self._parcel = parcel
        self.time_to_start = math.inf if backend.timeout == OFF else _TIME_TO_START
        self._workers: list[PoolWorker] = []  # type: ignore[assignment]

    def close(self) -> None:
        """Kill all local processes and free the parcel."""
        if not self._closed:
            super().close()
            os.close(self._parcel)

    def _room(self) -> int:
        """The number of local processes."""
        return self._backend.workers

    def _start(self) -> Worker:
        """A new local process."""
        return PoolWorker(self._parcel, self._backend.threads)

    def _wait(self) -> None:
        """Wait for an answer of any process, and go on sending."""
        # Not for ever: a child of a dead worker may keep the socket open, and a hung worker says nothing.
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                events = selectors.EVENT_WRITE if worker.has_unsent else 0
                selector.register(worker.socket, selectors.EVENT_READ | events)
            selector.select(LOOK_EVERY)
        for worker in self._workers:
            worker.push()


class PoolWorker(Worker):
    """A local process; this end of the socket to it never blocks, because the process may hang."""

    def __init__(self, parcel: int, threads: int) -> None:
        super().__init__()
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        with theirs:
            fds = (theirs.fileno(), parcel)
            numbers = (_signal_at_parents_death(), *fds, os.getpid(), threads)
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, json.dumps(sys.path), *(str(int(n)) for n in numbers)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=allocator.ENVIRONMENT | os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)),
                start_new_session=True,  # Ctrl-C in the terminal reaches this process alone, which decides
            )
        self.name = worker_name(self._process.pid)

    @property
    def has_unsent(self) -> bool:
        """Whether the process has not taken all of what was sent yet."""
        return bool(self._unsent)

    def send(self, request: bytes) -> None:
        """Send an item to the process."""
        self._unsent.extend((memoryview(LENGTH.pack(len(request))), memoryview(request)))
        self.push()

    def push(self) -> None:
        """Continue to send, as far as the process takes it."""
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def receive(self) -> bytes | None:
        """The process's answer, None if it is not complete yet."""
        try:
            while chunk := self.socket.recv(_CHUNK):
                self._received += chunk
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        message = self._next_message()
        if message is None or self.ready:
            return message
        self.start_work(pickle.loads(message))
        return None

    def _next_message(self) -> bytes | None:
        """The next complete message in the bytes that came through the socket."""
        start = LENGTH.size
        if len(self._received) < start:
            return None
        stop = start + LENGTH.unpack_from(self._received)[0]
        if len(self._received) < stop:
            return None
        message = bytes(memoryview(self._received)[start:stop])
        del self._received[:stop]
        return message

    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> str:
        """Kill the process; returns how it ended."""
        self._process.kill()
        self.socket.close()
        try:
            code = self._process.wait(_TIME_TO_DIE)
        except subprocess.TimeoutExpired:  # it waits for the system, for example for a disk that is gone
            return "killed, but not gone yet"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _signal_at_parents_death() -> int:
    """The signal that Linux sends a worker when the thread that started it ends.

    The main thread ends with the process. Any other may end long before: its workers are only woken, in case
    they are stopped, to check whether the process is gone.
    """
    return signal.SIGKILL if threading.get_native_id() == os.getpid() else signal.SIGCONT


# From here on: what runs in the processes.


def serve(channel_fd: int, parcel_fd: int, parent: int, threads: int) -> None:
    """Unpack the function once, then answer the parent's items until it closes the socket or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    channel = cast(BinaryIO, socket.socket(fileno=channel_fd).makefile("rwb"))
    try:
        torch.set_num_threads(threads)
        function, context = unpack(parcel_fd)
        os.close(parcel_fd)
    except Exception:
        write_message(channel, pickle.dumps(traceback.format_exc()))
        sys.exit(1)
    write_message(channel, pickle.dumps(None))
    while (request := read_message(channel)) is not None:
        write_message(channel, answer_item(function, context, request))


def write_message(end: BinaryIO, message: bytes) -> None:
    """Send a message, however long that takes."""
    end.write(LENGTH.pack(len(message)))
    end.write(message)
    end.flush()


def read_message(end: BinaryIO) -> bytes | None:
    """Wait for the next message; None if there will be no more."""
    head = end.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = end.read(length)
    return message if len(message) == length else None


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of an item."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_EVERY)
    os._exit(1)
