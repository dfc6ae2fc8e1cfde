"""A pool of local processes that survives the death of any of them.

>>> with PoolBackend(workers=2).open(lambda base, item: base + item, 10) as session:  # doctest: +SKIP
...     sorted(outcome.value for outcome in session.map([("a", 1), ("b", 2)]))
[11, 12]
"""

import math
import os
import pickle
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.base import (
    CLOSED,
    DEATHS_ALLOWED,
    Backend,
    Item,
    Key,
    Outcome,
    Session,
    Shared,
    Value,
)
from deeppruning.backends.limits import AUTO, OFF, Kind, TimeLimit, Timeout, Waiting, read_timeout, same_kind
from deeppruning.backends.parcel import pack
from deeppruning.backends.pool.process import Errand, Worker
from deeppruning.errors import DeepPruningError, InputError

_LOOK_FOR_DEAD_EVERY = 1.0
_TIME_TO_START = 600.0  # seconds to import torch and unpack, on a crowded machine with a slow disk


class PoolBackend(Backend):
    """Runs items in up to `workers` processes of `threads` torch threads each, started when needed.

    A worker that is silent for longer than `timeout` (seconds, or auto: by what such items took so far,
    or off) is killed.
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
            raise InputError(
                f"the function or its data cannot be sent to worker processes ({error!r}); use workers=1 "
                "to stay in this process, or leave out what cannot be sent (open files, locks, generators)"
            ) from error
        return _PoolSession(self, parcel, kind)

    def room(self) -> int:
        """As many as there are workers."""
        return self.workers


class _PoolSession(Session[Item, Value]):
    def __init__(self, backend: PoolBackend, parcel: int, kind: Kind) -> None:
        self._parcel: int | None = parcel
        self._size = backend.workers
        self._threads = backend.threads
        self._kind = kind
        self._limit = TimeLimit(backend.timeout)
        self._time_to_start = math.inf if backend.timeout == OFF else _TIME_TO_START
        self._workers: list[Worker] = []
        self._failed_starts = 0

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        source = iter(items)
        waiting: deque[Errand[Key]] = deque()
        try:
            self._hand_out(source, waiting)
            while self._busy() or waiting:
                # First what is done, for the next items may follow from it; callers deal with it at once.
                yield from self._collect(waiting)
                self._hand_out(source, waiting)
        finally:
            for worker in self._busy():
                self._drop(worker)

    def close(self) -> None:
        while self._workers:
            self._drop(self._workers[-1])
        if self._parcel is not None:
            os.close(self._parcel)
            self._parcel = None

    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _hand_out(self, source: Iterator[tuple[Key, Item]], waiting: deque[Errand[Key]]) -> None:
        """Give every idle worker a job and start as many workers as there are jobs for."""
        if self._parcel is None:
            raise InputError(CLOSED)
        while len(self._busy()) + len(waiting) < self._size:
            pair = next(source, None)
            if pair is None:
                break
            waiting.append(Errand(pair[0], self._kind(pair[1]), _request(*pair)))
        for worker in list(self._workers):
            if worker.ready and worker.job is None and waiting:
                self._assign(worker, waiting)
        while len(self._workers) < min(self._size, len(self._busy()) + len(waiting)):
            self._workers.append(Worker(self._parcel, self._threads))

    def _assign(self, worker: Worker, waiting: deque[Errand[Key]]) -> None:
        job = waiting[0]
        worker.channel.send(job.request)
        if worker.channel.ended:  # it died while idle, which is not the job's doing
            self._drop(worker)
            return
        waiting.popleft()
        job.attempts += 1
        job.started = time.perf_counter()
        worker.job, worker.silent = job, 0.0

    def _collect(self, waiting: deque[Errand[Key]]) -> list[Outcome[Key, Value]]:
        """Wait for something to happen and turn it into outcomes, if it amounts to any."""
        waited = self._wait()
        outcomes: list[Outcome[Key, Value]] = []
        for worker in list(self._workers):
            gone = worker.process.poll() is not None  # asked first: its last word may be there all the same
            message = worker.channel.receive()
            worker.silent += waited
            if message is not None:
                outcome = self._accept(worker, message)
            elif gone or worker.channel.ended:
                outcome = self._bury(worker, waiting)
            elif worker.silent > (limit := self._patience(worker)):
                outcome = self._bury(worker, waiting, f"no answer within {limit:.0f} s")
            else:
                continue
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def _wait(self) -> float:
        """Until a worker says something or takes more of what it was sent; the seconds that took."""
        # Not for ever: a dead worker's own child may keep the channel open, and a hung one says nothing.
        with selectors.DefaultSelector() as selector, Waiting(2 * _LOOK_FOR_DEAD_EVERY) as waiting:
            for worker in self._workers:
                wanted = selectors.EVENT_WRITE if worker.channel.has_unsent else 0
                selector.register(worker.channel, selectors.EVENT_READ | wanted)
            selector.select(_LOOK_FOR_DEAD_EVERY)
        for worker in self._workers:
            worker.channel.push()
        return waiting.seconds

    def _patience(self, worker: Worker) -> float:
        """For how many seconds a worker may be silent."""
        if worker.job is not None:
            return self._limit.of(worker.job.kind, worker.job.attempts)
        return math.inf if worker.ready else self._time_to_start

    def _accept(self, worker: Worker, message: bytes) -> Outcome[Any, Any] | None:
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
        if failure is None:
            self._limit.note(job.kind, seconds)
        return Outcome(job.key, value, failure, seconds, worker.name, job.attempts)

    def _bury(
        self, worker: Worker, waiting: deque[Errand[Key]], manner: str = ""
    ) -> Outcome[Any, Any] | None:
        """Remove a dead or hung worker; its job goes back to the head of the queue, or fails for good."""
        job = worker.job
        found = self._drop(worker)
        manner = manner or found
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

    def _drop(self, worker: Worker) -> str:
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
