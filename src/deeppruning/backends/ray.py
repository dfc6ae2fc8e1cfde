"""A cluster of machines through Ray: items run wherever there is room, and again if a machine was lost.

>>> with RayBackend().open(lambda base, item: base + item, 10) as session:  # doctest: +SKIP
...     sorted(outcome.value for outcome in session.map([("a", 1), ("b", 2)]))
[11, 12]
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from deeppruning.backends.base import Backend, Item, Key, Outcome, Session, Shared, Value
from deeppruning.backends.limits import AUTO, Kind, Timeout, read_timeout, same_kind
from deeppruning.backends.parcel import pack_array
from deeppruning.backends.ray_cluster import (
    Share,
    alive,
    check,
    connect,
    disconnect,
    import_ray,
    names,
    on_node,
)
from deeppruning.backends.ray_node import NodeWorker, Place, make_killer, versions
from deeppruning.backends.registry import BACKENDS, BackendKind, Wanted
from deeppruning.backends.workers import LOOK_EVERY, Worker, WorkerSession, cannot_send
from deeppruning.errors import DeepPruningError, InputError
from deeppruning.options import MACHINE, Options, option

_LOOK_AT_NODES_EVERY = 2.0
# Workers of this program without a job. Sessions share them, so that none takes the nodes from another.
_idle: list["RayWorker"] = []


class RayBackend(Backend):
    """Runs items on a Ray cluster, each with `threads` torch threads and a share of `cpus` and `gpus`.

    Without an address Ray starts on this machine and stops when the work is done; a program that has
    called ray.init itself keeps its connection. `workers` is the largest number of items that run at a time,
    by default as many as the cluster has room for. A worker that does not answer within `timeout` is killed:
    a number of seconds, "auto" (derived from the time that such items took so far) or "off". `say` is called
    with warnings about the cluster.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        threads: int = 1,
        workers: int | None = None,
        timeout: Timeout = AUTO,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if not cpus > 0:
            raise InputError(f"cpus, the CPUs per candidate, must be above 0, got {cpus}")
        if not gpus >= 0 or (gpus > 1 and gpus != int(gpus)):
            raise InputError(f"gpus, the GPUs per candidate, must be 0..1 or a whole number, got {gpus}")
        for name, value in (("threads", threads), ("workers", 1 if workers is None else workers)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.address = address
        self.share = Share(cpus, gpus)
        self.threads = threads
        self.workers = workers
        self.timeout = read_timeout(timeout)
        self._say = say or (lambda text: warnings.warn(text, RuntimeWarning, stacklevel=4))
        self._entered = 0

    def open(
        self, function: Callable[[Shared, Item], Value], context: Shared, kind: Kind = same_kind
    ) -> Session[Item, Value]:
        """Put the function and its context into the cluster's shared memory, once for all nodes."""
        self.__enter__()
        try:
            return _RaySession(self, _put_into_cluster(function, context), kind)
        except BaseException:
            self.__exit__()
            raise

    def device(self, asked: str) -> str:
        """A GPU of the node if items have a share of one, else the CPU, whatever this machine has."""
        device = "cuda" if self.share.gpus else "cpu"
        if asked not in ("auto", device):
            raise InputError(
                f"device {asked!r} does not fit {self.share.gpus:g} GPUs per candidate on Ray; use device "
                "auto and set the GPUs per candidate with --ray-gpus (gpus= in Python)"
            )
        return device

    def room(self) -> int:
        """How many items run at a time on the cluster as it is; to be called inside the `with` block."""
        room = max(1, sum(self.share.fits(node) for node in alive()))
        return room if self.workers is None else min(self.workers, room)

    def __enter__(self) -> "RayBackend":
        """Join the cluster or start Ray, and check every node once."""
        connect(self.address, processors=None if self.workers is None else self.workers * self.share.cpus)
        self._entered += 1
        if self._entered > 1:
            return self
        try:
            for warning in check(self.share):
                self._say(warning)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            while _idle:
                _idle.pop().kill()
        disconnect()


class _RaySession(WorkerSession[Item, Value]):
    """A session over actors of a Ray cluster, which later sessions use again."""

    def __init__(self, backend: RayBackend, parcel: Any, kind: Kind) -> None:
        super().__init__(kind, backend.timeout)
        self._backend = backend
        self._parcel = parcel
        self._limit = 0
        self._looked = float("-inf")
        self._workers: list[RayWorker] = []  # type: ignore[assignment]

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        """Run items on the actors, idle ones of earlier sessions first."""
        try:
            while _idle:
                worker = _idle.pop()
                if worker.share == self._backend.share:
                    worker.open(self._parcel, self._backend.threads)
                    self._workers.append(worker)
                else:
                    worker.kill()
            yield from super().map(items)
        finally:
            for worker in list(self._workers):
                if not worker.ready:
                    self._drop_worker(worker)
            _idle.extend(self._workers)
            self._workers.clear()

    def close(self) -> None:
        """Leave the cluster's actors and its memory."""
        if not self._closed:
            super().close()
            self._parcel = None
            self._backend.__exit__()

    def _room(self) -> int:
        """As many items as there is room for, and half as many again: their workers wait in Ray's queue.

        Those start on a node that joins, and show an autoscaler that more nodes would be of use.
        """
        if time.monotonic() - self._looked >= _LOOK_AT_NODES_EVERY:
            room = self._backend.room()
            self._limit = room if self._backend.workers is not None else room + room // 2
            self._looked = time.monotonic()
        return self._limit

    def _start(self) -> Worker:
        """A new actor of the cluster."""
        worker = RayWorker(self._backend.share)
        worker.open(self._parcel, self._backend.threads)
        return worker

    def _wait(self) -> None:
        """Wait for an answer of any actor."""
        ray = import_ray()
        calls = [worker.call for worker in self._workers if worker.call is not None]
        ray.wait(calls, timeout=LOOK_EVERY)
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=0)
        for worker in self._workers:
            worker.has_answered = worker.call in done


class RayWorker(Worker):
    """An actor of the cluster, as this program sees it."""

    def __init__(self, share: Share) -> None:
        super().__init__()
        self.share = share
        self._ray = import_ray()
        options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "scheduling_strategy": "SPREAD"}
        self._actor = self._ray.remote(**options, max_restarts=0)(NodeWorker).remote()
        self._parcel: Any = None
        self._place: Place | None = None
        self.call: Any = None  # what it was asked last
        self.has_answered = False
        self._unreachable = False

    def open(self, parcel: Any, threads: int) -> None:
        """Prepare it for a session, unless it is prepared."""
        if parcel is not self._parcel:
            self.ready, self._parcel, self.silent = False, parcel, 0.0
            self.call = self._actor.open.remote(parcel, threads, versions())

    def send(self, request: bytes) -> None:
        """Send an item to the actor."""
        self.call = self._actor.answer.remote(request)

    def receive(self) -> bytes | None:
        """The actor's answer, None if there is none yet; notes an actor that is lost."""
        if not self.has_answered:
            return None
        call, self.call, self.has_answered = self.call, None, False
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(call)
        except (errors.ActorUnavailableError, errors.ObjectLostError):  # not the death of its process alone
            self.ended = self._unreachable = True
            return None
        except (errors.RayActorError, errors.OutOfMemoryError):
            self.ended = True
            return None
        except errors.RayTaskError as error:
            self.start_work(str(error))
            raise
        except errors.RayError as error:
            raise DeepPruningError(f"Ray could not run an item: {error}") from error
        if self.ready:
            return bytes(answer)
        self._place = answer
        self.name = f"{names(alive()).get(answer.node, answer.node[:8])}:{answer.pid}"
        self.start_work(answer.problem)
        return None

    def is_lost(self) -> bool:
        """Whether its node has left the cluster or cannot be reached."""
        if self._unreachable or self._place is None:
            return self._unreachable
        return self._place.node not in {node["NodeID"] for node in alive()}

    def kill(self) -> str:
        """End the actor, and its process at once if it is in the middle of an item."""
        if self._ray.is_initialized():
            if self.job is not None and not self.ended and self._place is not None:
                options = on_node(self._place.node)
                self._ray.remote(**options)(make_killer()).remote(self._place.pid)
            self._ray.kill(self._actor)
        return "crashed or killed"


def _put_into_cluster(function: object, context: object) -> Any:
    """A reference to the function and its context in the object store of this machine's node."""
    ray = import_ray()
    try:
        parcel = pack_array((function, context))
    except Exception as error:
        raise cannot_send("the function or its data", error) from error
    try:
        return ray.put(parcel)
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise InputError(
            f"the data set and the network take {parcel.nbytes / 1e6:.0f} MB, more than Ray's object store "
            "holds; start the nodes with a larger --object-store-memory"
        ) from error


@dataclass(frozen=True, kw_only=True)
class RayOptions(Options):
    """The flags of this backend."""

    ray_address: str | None = option(
        None, "The Ray cluster to join.", heading=MACHINE, metavar="auto|HOST:PORT|ray://HOST:PORT",
        default_text="none: start Ray on this machine, and stop it after the run",
    )  # fmt: skip
    ray_cpus: float | None = option(
        None, "CPUs per candidate.", heading=MACHINE, default_text="as many as --threads"
    )
    ray_gpus: float | None = option(
        None, "GPUs per candidate; 0.25 lets four share one.", heading=MACHINE, default_text="0"
    )


def _make_ray_backend(wanted: Wanted) -> RayBackend:
    """The backend that the flags ask for."""
    options = RayOptions(**wanted.options)
    return RayBackend(
        address=options.ray_address,
        cpus=wanted.threads if options.ray_cpus is None else options.ray_cpus,
        gpus=options.ray_gpus or 0,
        threads=wanted.threads,
        workers=wanted.workers,
        timeout=wanted.timeout,
        say=wanted.say,
    )


BACKENDS.add(BackendKind("ray", "a Ray cluster", _make_ray_backend, RayOptions), place=20)
