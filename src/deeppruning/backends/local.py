"""The backend of this machine: this process for one worker, a pool of processes for more.

>>> with InProcessBackend().open(lambda base, item: base + item, 10) as session:
...     [outcome.value for outcome in session.map([("a", 1), ("b", 2)])]
[11, 12]
"""

from collections.abc import Callable, Iterable, Iterator

from deeppruning.backends.base import (
    CLOSED,
    Backend,
    Item,
    Key,
    Outcome,
    Session,
    Shared,
    Value,
    attempt,
    worker_name,
)
from deeppruning.backends.limits import AUTO, OFF, Kind, same_kind
from deeppruning.backends.pool import PoolBackend
from deeppruning.backends.registry import BACKENDS, LOCAL, BackendKind, Wanted
from deeppruning.errors import InputError
from deeppruning.system.device import default_workers, torch_threads


class InProcessBackend(Backend):
    """Runs items one after the other in this process, with `threads` torch threads."""

    def __init__(self, *, threads: int = 1) -> None:
        if threads < 1:
            raise InputError(f"threads must be at least 1, got {threads}")
        self.threads = threads

    def open(
        self, function: Callable[[Shared, Item], Value], context: Shared, kind: Kind = same_kind
    ) -> Session[Item, Value]:
        """A session that needs no preparation."""
        return _InProcessSession(lambda item: attempt(function, context, item), self.threads)


class _InProcessSession(Session[Item, Value]):
    """A session of this process: items run one after the other, where they are asked for."""

    def __init__(self, call: Callable[[Item], tuple[Value | None, str | None, float]], threads: int) -> None:
        self._call = call
        self._threads = threads
        self._closed = False

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        """Run each item here, with its own number of torch threads."""
        name = worker_name()
        for key, item in items:
            if self._closed:
                raise InputError(CLOSED)
            with torch_threads(self._threads):
                value, failure, seconds = self._call(item)
            yield Outcome(key, value, failure, seconds, name, attempts=1)

    def close(self) -> None:
        """Nothing to stop: every item has ended when its outcome is returned."""
        self._closed = True


def local_backend(wanted: Wanted) -> Backend:
    """This process if that is enough, else a pool."""
    workers = default_workers(wanted.threads) if wanted.workers is None else wanted.workers
    # A time limit in seconds needs a process that can be killed.
    if workers == 1 and wanted.timeout in (AUTO, OFF):
        return InProcessBackend(threads=wanted.threads)
    return PoolBackend(workers=workers, threads=wanted.threads, timeout=wanted.timeout)


BACKENDS.add(BackendKind(LOCAL, "processes of this machine", local_backend), place=10)
