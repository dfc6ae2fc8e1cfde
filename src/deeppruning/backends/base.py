"""The contract of backends: sessions map a function over items and yield outcomes; and what all share."""

import os
import pickle
import socket
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.limits import Kind, same_kind
from deeppruning.system.device import choose_device

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)
Entered = TypeVar("Entered", bound="Backend")

CLOSED = "this session is closed; open another one from the backend"


@dataclass(frozen=True)
class Outcome(Generic[Key, Value]):
    """The outcome of one item: a value, or the text of a failure."""

    key: Key
    value: Value | None
    failure: str | None
    seconds: float  # spent in the function, in the last attempt
    worker: str  # host:pid of the process that ran it, or node:pid on a cluster; empty if unknown
    attempts: int  # 1 unless a worker died or hung, or a machine was lost


class Session(AbstractContextManager["Session[Item, Value]"], ABC, Generic[Item, Value]):
    """A function and its context, ready to be mapped over items; closed by leaving its `with` block."""

    @abstractmethod
    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        """Run the function on every item and yield each outcome as it completes, in any order.

        May be called again once exhausted; two maps of one session must not run at the same time.
        Items are taken from the iterable as workers become free, not all at once. Leaving the
        iterator early stops what is still running.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop everything at once, including what is still running; further calls do nothing."""

    def __exit__(self, *_: object) -> None:
        self.close()


class Backend(ABC):
    """A place where a function can be mapped over items. The contract, which one test class checks:

    - `function(context, item)` is called once for each item, and each key yields exactly one Outcome.
    - The context reaches every worker once, however many items there are. It belongs to the function
      for reading: a change to it may be seen by later items or not, depending on the backend.
    - An exception inside the function becomes the failure of that item, with the traceback as text. It
      is not tried again, because it would only fail again. KeyboardInterrupt is not caught.
    - A worker that dies is replaced and its item tried again; an item that three workers died on fails
      with "worker died 3 times" and how the last one died. A worker that is stopped or hangs, so that an
      item takes far longer than others of its kind, is killed and counts as dead.
    - The number of torch threads during a call is the backend's `threads`, here or in a worker, so the
      same function gives the same bits with any number of workers.
    - What cannot be sent to a worker is an InputError when the session opens or the item is due.
    - An interrupt closes everything within seconds, and workers end by themselves, even stopped ones,
      when the process that started them is killed.
    - A problem of the place itself (no such cluster, no GPU) is an InputError on entering the backend's own
      `with` block, or else when a session opens. The block may be entered again.
    """

    @abstractmethod
    def open(
        self, function: Callable[[Shared, Item], Value], context: Shared, kind: Kind = same_kind
    ) -> Session[Item, Value]:
        """Prepare to map `function` with `context`; use the session in a `with` block.

        `kind` groups items that take about as long; time limits are derived for each kind.
        """

    def device(self, asked: str) -> str:
        """The device that workers use when a user asks for this one, which may be "auto"."""
        return str(choose_device(asked))

    def room(self) -> int:
        """How many items run at a time; to be called inside the `with` block."""
        return 1

    def __enter__(self: Entered) -> Entered:
        """Check that the place can be used; sessions opened inside share what this starts."""
        return self

    def __exit__(self, *_: object) -> None:
        return None


def attempt(
    function: Callable[[Shared, Item], Value], context: Shared, item: Item
) -> tuple[Value | None, str | None, float]:
    """Call the function once: its value or the text of its failure, and the seconds it took."""
    started = time.perf_counter()
    value, failure = None, None
    try:
        value = function(context, item)
    except KeyboardInterrupt:
        raise
    except BaseException:  # also SystemExit: an item must not be able to end the run
        failure = traceback.format_exc()
    return value, failure, time.perf_counter() - started


def answer_item(function: Callable[[Any, Any], Any], context: object, request: bytes) -> bytes:
    """Call the function, in a worker, on a pickled item: the pickled result of `attempt`."""
    try:
        item = pickle.loads(request)
    except Exception:
        return pickle.dumps((None, traceback.format_exc(), 0.0))
    value, failure, seconds = attempt(function, context, item)
    try:
        # cloudpickle, because the value's class may live in the user's script.
        return bytes(cloudpickle.dumps((value, failure, seconds)))
    except Exception:
        return pickle.dumps((None, traceback.format_exc(), seconds))


def worker_name(pid: int | None = None) -> str:
    """The name of a process in outcomes, by default this one: host:pid."""
    return f"{socket.gethostname()}:{os.getpid() if pid is None else pid}"
