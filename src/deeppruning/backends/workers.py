"""A session over worker processes, here or on other machines, that survives the death of any of them."""

import math
import pickle
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.base import CLOSED, Item, Key, Outcome, Session, Value
from deeppruning.backends.limits import Kind, TimeLimit, Timeout
from deeppruning.errors import DeepPruningError, InputError

DEATHS_ALLOWED = 3
# A lost machine is not the item's fault, so it is not one of the three deaths; but an item that brings down
# one machine after another must fail at some point.
LOSSES_ALLOWED = 10
LOOK_EVERY = 1.0  # seconds after which workers that say nothing are checked


@dataclass(eq=False)
class Request(Generic[Key]):
    """An item that has not been answered yet."""

    key: Key
    kind: Hashable
    request: bytes  # the pickled item
    attempts: int = 0
    losses: int = 0  # attempts that ended with the loss of a machine
    started: float = 0.0


class Worker(ABC):
    """A process that answers items, one at a time."""

    name = ""  # host:pid, or node:pid on a cluster
    ready = False  # to answer items; set by `receive`
    ended = False  # its connection is closed; set by `send` and `receive`

    def __init__(self) -> None:
        self.job: Request[Any] | None = None
        self.silent = 0.0  # seconds waited for it since it was started or got its job

    @abstractmethod
    def send(self, request: bytes) -> None:
        """Give it an item."""

    @abstractmethod
    def receive(self) -> bytes | None:
        """The answer to its item, if it has arrived."""

    def has_exited(self) -> bool:
        """Whether the process is known to have ended; an answer may still arrive."""
        return False

    def is_lost(self) -> bool:
        """Whether it ended with its machine."""
        return False

    @abstractmethod
    def kill(self) -> str:
        """End the process if it has not ended; returns how it ended."""

    def start_work(self, problem: str | None) -> None:
        """Become ready, unless the process could not unpack the function and its context."""
        if problem is not None:
            raise InputError(
                f"worker {self.name} could not rebuild the function and its data; install on every machine "
                "what is installed here and make its modules importable, or use the local backend with "
                f"workers=1 to stay in this process. The worker said:\n{problem}"
            )
        self.ready = True


class WorkerSession(Session[Item, Value]):
    """Gives items to workers, replaces workers that die and retries their items."""

    time_to_start = math.inf  # seconds until a worker that is not ready counts as hung

    def __init__(self, kind: Kind, timeout: Timeout) -> None:
        self._kind = kind
        self._time_limit = TimeLimit(timeout)
        self._workers: list[Worker] = []
        self._failed_starts = 0
        self._closed = False

    @abstractmethod
    def _room(self) -> int:
        """How many items may be handed out at a time."""

    @abstractmethod
    def _start(self) -> Worker:
        """A new worker, which need not be ready yet."""

    @abstractmethod
    def _wait(self) -> None:
        """Wait until a worker says something, for `LOOK_EVERY` seconds at most."""

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        """Hand items out to workers and yield outcomes as they arrive."""
        source = iter(items)
        waiting: deque[Request[Key]] = deque()
        try:
            self._hand_out(source, waiting)
            while self._busy_workers() or waiting:
                # Outcomes first: the next items may depend on what the caller does with them.
                yield from self._collect_outcomes(waiting)
                self._hand_out(source, waiting)
        finally:
            for worker in self._busy_workers():
                self._drop_worker(worker)

    def close(self) -> None:
        """Kill all workers."""
        while self._workers:
            self._drop_worker(self._workers[-1])
        self._closed = True

    def _busy_workers(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _hand_out(self, source: Iterator[tuple[Key, Item]], waiting: deque[Request[Key]]) -> None:
        """Give every idle worker a job and start as many workers as there are jobs for."""
        if self._closed:
            raise InputError(CLOSED)
        room = self._room()
        while len(self._busy_workers()) + len(waiting) < room:
            pair = next(source, None)
            if pair is None:
                break
            waiting.append(Request(pair[0], self._kind(pair[1]), _pickled_item(*pair)))
        for worker in list(self._workers):
            if worker.ready and worker.job is None and waiting:
                self._assign_item(worker, waiting)
        while len(self._workers) < min(room, len(self._busy_workers()) + len(waiting)):
            self._workers.append(self._start())

    def _assign_item(self, worker: Worker, waiting: deque[Request[Key]]) -> None:
        job = waiting[0]
        worker.send(job.request)
        if worker.ended:  # it died while idle, which is not the job's fault
            self._drop_worker(worker)
            return
        waiting.popleft()
        job.attempts += 1
        job.started = time.perf_counter()
        worker.job, worker.silent = job, 0.0
        self._failed_starts = 0

    def _collect_outcomes(self, waiting: deque[Request[Key]]) -> list[Outcome[Key, Value]]:
        """Wait for something to happen, and return the outcomes that follow from it."""
        began = time.monotonic()
        self._wait()
        # Time that passes while the machine sleeps or this process is stopped says nothing about the workers;
        # it shows as one long wait, so long waits are cut off.
        waited = min(time.monotonic() - began, 2 * LOOK_EVERY)
        outcomes: list[Outcome[Key, Value]] = []
        for worker in list(self._workers):
            exited = worker.has_exited()  # asked first: its last answer may have arrived all the same
            answer = worker.receive()
            worker.silent += waited
            if answer is not None:
                outcome: Outcome[Key, Value] | None = self._accept_answer(worker, answer)
            elif exited or worker.ended:
                outcome = self._bury_worker(worker, waiting)
            elif worker.silent > (limit := self._patience_with_worker(worker)):
                outcome = self._bury_worker(worker, waiting, f"no answer within {limit:.0f} s")
            else:
                continue
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def _patience_with_worker(self, worker: Worker) -> float:
        """For how many seconds a worker may be silent."""
        if worker.job is not None:
            return self._time_limit.of(worker.job.kind, worker.job.attempts)
        return math.inf if worker.ready else self.time_to_start

    def _accept_answer(self, worker: Worker, answer: bytes) -> Outcome[Any, Any]:
        job, worker.job = worker.job, None
        assert job is not None
        try:
            value, failure, seconds = pickle.loads(answer)
        except Exception as error:
            value, seconds = None, time.perf_counter() - job.started
            failure = f"the worker's answer cannot be read here: {error!r}"
        if failure is None:
            self._time_limit.note(job.kind, seconds)
        return Outcome(job.key, value, failure, seconds, worker.name, job.attempts)

    def _bury_worker(
        self, worker: Worker, waiting: deque[Request[Key]], manner: str = ""
    ) -> Outcome[Any, Any] | None:
        """Remove a dead or hung worker; its job goes back to the head of the queue, or fails for good."""
        job, lost = worker.job, worker.is_lost()
        ending = self._drop_worker(worker)
        manner = manner or ("its node was lost" if lost else ending)
        if job is None:
            self._failed_starts += not worker.ready and not lost
            if self._failed_starts >= DEATHS_ALLOWED:
                raise DeepPruningError(
                    f"{DEATHS_ALLOWED} worker processes in a row died while starting ({manner}); check that "
                    "there is memory for them, or use the local backend with workers=1"
                )
            return None
        job.losses += lost
        deaths = job.attempts - job.losses
        if deaths < DEATHS_ALLOWED and job.losses < LOSSES_ALLOWED:
            waiting.appendleft(job)
            return None
        failure = f"worker died {max(deaths, job.losses)} times (last: {manner})"
        seconds = time.perf_counter() - job.started
        return Outcome(job.key, None, failure, seconds, worker.name, job.attempts)

    def _drop_worker(self, worker: Worker) -> str:
        manner = worker.kill()
        self._workers.remove(worker)
        return manner


def cannot_send(what: str, error: Exception) -> InputError:
    """The error for a function, its context or an item that cannot be pickled."""
    return InputError(
        f"{what} cannot be sent to a worker process ({error!r}); use the local backend with workers=1 to "
        "stay in this process, or leave out what cannot be sent (open files, locks, generators)"
    )


def _pickled_item(key: object, item: object) -> bytes:
    """The item as bytes to send to a worker."""
    try:
        return bytes(cloudpickle.dumps(item))
    except Exception as error:
        raise cannot_send(f"item {key!r}", error) from error
