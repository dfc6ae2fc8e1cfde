"""A pool of local processes that survives the death of any of them.

>>> with PoolBackend(workers=2).open(lambda base, item: base + item, 10) as session:  # doctest: +SKIP
...     sorted(outcome.value for outcome in session.map([("a", 1), ("b", 2)]))
[11, 12]
"""

import json
import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.base import (
    CLOSED,
    DEATHS_ALLOWED,
    Backend,
    Context,
    Item,
    Key,
    Outcome,
    Session,
    Value,
    worker_name,
)
from deeppruning.backends.parcel import pack
from deeppruning.backends.worker import BOOTSTRAP
from deeppruning.errors import DeepPruningError, InputError

# glibc would give large freed blocks back to the system at every step and ask for them anew at the next.
_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_LOOK_FOR_DEAD_EVERY = 1.0


class PoolBackend(Backend):
    """Runs items in up to `workers` processes of `threads` torch threads each, started when needed."""

    def __init__(self, *, workers: int = 2, threads: int = 1) -> None:
        for name, value in (("workers", workers), ("threads", threads)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.workers = workers
        self.threads = threads

    def open(self, function: Callable[[Context, Item], Value], context: Context) -> Session[Item, Value]:
        """Pack the function and its context once for all workers; none is started yet."""
        try:
            parcel = pack((function, context))
        except Exception as error:
            raise InputError(
                f"the function or its data cannot be sent to worker processes ({error!r}); use workers=1 "
                "to stay in this process, or leave out what cannot be sent (open files, locks, generators)"
            ) from error
        return _PoolSession(parcel, self.workers, self.threads)


@dataclass(eq=False)
class _Job(Generic[Key]):
    key: Key
    request: bytes
    attempts: int = 0
    started: float = 0.0


class _Worker:
    """A process, the channel to it, and the job it has."""

    def __init__(self, parcel: int, threads: int) -> None:
        self.channel, theirs = Pipe()
        self.job: _Job[Any] | None = None
        self.ready = False
        with theirs:
            fds = (theirs.fileno(), parcel)
            numbers = (*fds, os.getpid(), threads)
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOTSTRAP, json.dumps(sys.path), *map(str, numbers)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=_KEEP_FREED_MEMORY | os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)),
                start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone, which decides
            )
        self.name = worker_name(self.process.pid)

    def kill(self) -> str:
        """End the process if it has not ended; says how it ended."""
        self.process.kill()
        code = self.process.wait()
        self.channel.close()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class _PoolSession(Session[Item, Value]):
    def __init__(self, parcel: int, size: int, threads: int) -> None:
        self._parcel: int | None = parcel
        self._size = size
        self._threads = threads
        self._workers: list[_Worker] = []
        self._failed_starts = 0

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        source = iter(items)
        waiting: deque[_Job[Key]] = deque()
        try:
            self._hand_out(source, waiting)
            while self._busy() or waiting:
                outcomes = self._collect(waiting)
                # Before yielding, so that workers do not idle while the caller deals with the outcome.
                self._hand_out(source, waiting)
                yield from outcomes
        finally:
            for worker in self._busy():
                self._drop(worker)

    def close(self) -> None:
        while self._workers:
            self._drop(self._workers[-1])
        if self._parcel is not None:
            os.close(self._parcel)
            self._parcel = None

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _hand_out(self, source: Iterator[tuple[Key, Item]], waiting: deque[_Job[Key]]) -> None:
        """Give every idle worker a job and start as many workers as there are jobs for."""
        if self._parcel is None:
            raise InputError(CLOSED)
        while len(self._busy()) + len(waiting) < self._size:
            pair = next(source, None)
            if pair is None:
                break
            waiting.append(_Job(pair[0], _request(*pair)))
        for worker in list(self._workers):
            if worker.ready and worker.job is None and waiting:
                self._assign(worker, waiting)
        while len(self._workers) < min(self._size, len(self._busy()) + len(waiting)):
            self._workers.append(_Worker(self._parcel, self._threads))

    def _assign(self, worker: _Worker, waiting: deque[_Job[Key]]) -> None:
        job = waiting[0]
        try:
            worker.channel.send_bytes(job.request)
        except OSError:  # it died while idle, which is not the job's doing
            self._drop(worker)
            return
        waiting.popleft()
        job.attempts += 1
        job.started = time.perf_counter()
        worker.job = job

    def _collect(self, waiting: deque[_Job[Key]]) -> list[Outcome[Key, Value]]:
        """Wait for something to happen and turn it into outcomes, if it amounts to any."""
        channels = [worker.channel for worker in self._workers]
        # The time limit is for a worker whose own child keeps the dead worker's channel open.
        happened = wait(channels, timeout=_LOOK_FOR_DEAD_EVERY)
        outcomes: list[Outcome[Key, Value]] = []
        for worker in list(self._workers):
            gone = worker.process.poll() is not None
            if worker.channel in happened or (gone and worker.channel.poll()):
                message = _receive(worker.channel)
            elif gone:
                message = None
            else:
                continue
            outcome = self._bury(worker, waiting) if message is None else self._accept(worker, message)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def _accept(self, worker: _Worker, message: bytes) -> Outcome[Any, Any] | None:
        """An answer to a job, or a worker's first word: None when it is ready, else why it is not."""
        if worker.job is None:
            problem = pickle.loads(message)
            if problem is not None:
                raise InputError(
                    "a worker process could not rebuild the function and its data; use workers=1 to stay in "
                    f"this process, or make its modules importable. The worker said:\n{problem}"
                )
            worker.ready = True
            self._failed_starts = 0
            return None
        job, worker.job = worker.job, None
        try:
            value, failure, seconds = pickle.loads(message)
        except Exception as error:
            value, seconds = None, time.perf_counter() - job.started
            failure = f"the worker's answer cannot be read here: {error!r}"
        return Outcome(job.key, value, failure, seconds, worker.name, job.attempts)

    def _bury(self, worker: _Worker, waiting: deque[_Job[Key]]) -> Outcome[Any, Any] | None:
        """Remove a dead worker; its job goes back to the head of the queue, or fails for good."""
        job = worker.job
        manner = self._drop(worker)
        if job is None:
            self._failed_starts += not worker.ready
            if self._failed_starts >= DEATHS_ALLOWED:
                raise DeepPruningError(
                    f"{DEATHS_ALLOWED} worker processes in a row died while starting ({manner}); check that "
                    "there is memory for them, or use workers=1"
                )
            return None
        if job.attempts < DEATHS_ALLOWED:
            waiting.appendleft(job)
            return None
        failure = f"worker died {job.attempts} times (last: {manner})"
        seconds = time.perf_counter() - job.started
        return Outcome(job.key, None, failure, seconds, worker.name, job.attempts)

    def _drop(self, worker: _Worker) -> str:
        manner = worker.kill()
        self._workers.remove(worker)
        return manner


def _request(key: object, item: object) -> bytes:
    try:
        return bytes(cloudpickle.dumps(item))
    except Exception as error:
        raise InputError(
            f"item {key!r} cannot be sent to a worker process ({error!r}); use workers=1 to stay here"
        ) from error


def _receive(channel: Connection) -> bytes | None:
    """The next message, or None when there will be no more."""
    try:
        return channel.recv_bytes()
    except (EOFError, OSError):
        return None
