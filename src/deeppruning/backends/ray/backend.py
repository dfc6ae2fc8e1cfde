"""A cluster of machines through Ray: items go wherever there is room, and again where a machine was lost.

>>> with RayBackend().open(lambda base, item: base + item, 10) as session:  # doctest: +SKIP
...     sorted(outcome.value for outcome in session.map([("a", 1), ("b", 2)]))
[11, 12]
"""

import pickle
import time
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic

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
from deeppruning.backends.limits import AUTO, Kind, TimeLimit, Timeout, Waiting, read_timeout, same_kind
from deeppruning.backends.parcel import pack_array
from deeppruning.backends.ray import nodes as ray_nodes
from deeppruning.backends.ray.connection import connect, disconnect, import_ray, is_connected
from deeppruning.backends.ray.nodes import Share
from deeppruning.backends.ray.watch import announced, end_worker, forget, forget_all
from deeppruning.backends.ray.worker import Reply, answer, versions
from deeppruning.errors import DeepPruningError, InputError

# A lost machine is not the item's doing, so it does not count as one of the three deaths; but an item
# that brings down one machine after another must end somewhere.
LOSSES_ALLOWED = 10
_LOOK_AT_NODES_EVERY = 2.0
_TIME_TO_DIE = 60.0


class RayBackend(Backend):
    """Runs items on a Ray cluster, each with `threads` torch threads and a share of `cpus` and `gpus`.

    Without an address Ray starts on this machine and stops when the work is done; a program that has
    called ray.init itself keeps its connection. `workers` is the most items that run at a time, where
    that is to be fewer than the cluster has room for. A worker that has not answered an item within
    `timeout` (seconds, or auto: by what such items took so far, or off) is killed. `say` is told what is
    odd about the cluster.
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
            raise InputError(f"cpus, a candidate's share of processors, must be more than 0, got {cpus}")
        if not gpus >= 0 or (gpus > 1 and gpus != int(gpus)):
            raise InputError(f"gpus, a candidate's share, must be 0..1 or a whole number, got {gpus}")
        for name, value in (("threads", threads), ("workers", 1 if workers is None else workers)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.address = address
        self.share = Share(cpus, gpus)
        self.threads = threads
        self.workers = workers
        self.timeout = read_timeout(timeout)
        self._say = say or _warn
        self._entered = 0

    def open(
        self, function: Callable[[Shared, Item], Value], context: Shared, kind: Kind = same_kind
    ) -> Session[Item, Value]:
        """Put the function and its context into the cluster's shared memory, once for all nodes."""
        self.__enter__()
        try:
            return _RaySession(self, _store(function, context), kind)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def device(self, asked: str) -> str:
        """A GPU of the node if items have a share of one, else the processor; this machine has no say."""
        if asked not in ("auto", "cuda" if self.share.gpus else "cpu"):
            raise InputError(
                f"device {asked!r} does not go with {self.share.gpus:g} GPUs a candidate on Ray; use device "
                "auto, and --ray-gpus (gpus= in Python) to say how much of a GPU a candidate gets"
            )
        return "cuda" if self.share.gpus else "cpu"

    def room(self) -> int:
        """How many items run at a time with the cluster as it is; to be asked inside the `with` block."""
        free = max(1, ray_nodes.room(self.share))
        return free if self.workers is None else min(self.workers, free)

    def __enter__(self) -> "RayBackend":
        """Join the cluster or start Ray, and look at every node once."""
        connect(self.address, processors=None if self.workers is None else self.workers * self.share.cpus)
        self._entered += 1
        if self._entered > 1:
            return self
        try:
            for remark in ray_nodes.check(self.share):
                self._say(remark)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        disconnect()


@dataclass(eq=False)
class _Job(Generic[Key]):
    key: Key
    kind: Hashable
    request: bytes
    deaths: int = 0
    losses: int = 0
    started: float = 0.0
    announced_as: str = ""  # by whoever runs it
    silent: float = 0.0  # seconds it was waited for since then
    hung: str = ""  # why it was given up

    @property
    def attempts(self) -> int:
        return 1 + self.deaths + self.losses


class _RaySession(Session[Item, Value]):
    def __init__(self, backend: RayBackend, parcel: Any, kind: Kind) -> None:
        self._ray = import_ray()
        self._backend = backend
        self._parcel = parcel
        self._name = uuid.uuid4().hex
        self._versions = versions()
        self._answer = self._ray.remote(
            num_cpus=backend.share.cpus,
            num_gpus=backend.share.gpus,
            max_retries=0,  # retries are counted here
            scheduling_strategy="SPREAD",
        )(answer)
        self._kind = kind
        self._time_limit = TimeLimit(backend.timeout)
        self._submitted = 0
        self._unseen = 0.0  # seconds waited since running items were last looked at
        self._limit = 0
        self._looked = float("-inf")
        self._names: dict[str, str] = {}

    def map(self, items: Iterable[tuple[Key, Item]]) -> Iterator[Outcome[Key, Value]]:
        source = iter(items)
        running: dict[Any, _Job[Key]] = {}
        try:
            self._hand_out(source, running)
            while running:
                with Waiting(2 * _LOOK_AT_NODES_EVERY) as waiting:
                    done, _ = self._ray.wait(list(running), timeout=_LOOK_AT_NODES_EVERY)
                settled = [self._settle(ref, running) for ref in done]
                settled += self._give_up_hung(running, waiting.seconds)
                # First what is done, for the next items may follow from it; callers deal with it at once.
                yield from (outcome for outcome in settled if outcome is not None)
                self._hand_out(source, running)
        finally:
            if is_connected():
                for ref in running:
                    self._ray.cancel(ref, force=True)

    def close(self) -> None:
        if self._parcel is not None:
            self._parcel = None
            if is_connected():
                forget_all(self._name)
            self._backend.__exit__(None, None, None)

    def _hand_out(self, source: Iterator[tuple[Key, Item]], running: dict[Any, _Job[Key]]) -> None:
        """Submit as many items as the cluster has room for, and some more, see `_look_at_nodes`."""
        if self._parcel is None:
            raise InputError(CLOSED)
        self._look_at_nodes()
        while len(running) < self._limit:
            pair = next(source, None)
            if pair is None:
                return
            self._submit(_Job(pair[0], self._kind(pair[1]), _request(*pair)), running)

    def _look_at_nodes(self) -> None:
        """Nodes come and go. Half as many items again as there is room for wait in Ray's own queue.

        A node that becomes free finds the next item there, and an autoscaler sees that more nodes would
        be of use.
        """
        if time.monotonic() - self._looked < _LOOK_AT_NODES_EVERY:
            return
        room = self._backend.room()
        self._limit = room if self._backend.workers is not None else room + room // 2
        self._names |= ray_nodes.names(ray_nodes.alive())
        self._looked = time.monotonic()

    def _submit(self, job: _Job[Key], running: dict[Any, _Job[Key]]) -> None:
        self._submitted += 1
        job.announced_as = f"{self._name}/{self._submitted}"
        job.started, job.silent, job.hung = time.perf_counter(), 0.0, ""
        ref = self._answer.remote(
            self._parcel, self._name, job.request, self._backend.threads, self._versions, job.announced_as
        )
        running[ref] = job

    def _give_up_hung(self, running: dict[Any, _Job[Key]], waited: float) -> list[Outcome[Key, Any] | None]:
        """Have those killed that run for too long; what waits in Ray's queue is not running."""
        self._unseen += waited
        if self._unseen < _LOOK_AT_NODES_EVERY or not running:
            return []
        waited, self._unseen = self._unseen, 0.0
        places = announced(self._name)
        settled = []
        for ref, job in list(running.items()):
            if job.announced_as not in places:
                continue
            job.silent += waited
            limit = self._time_limit.of(job.kind, job.attempts)
            if job.silent > limit and not job.hung:
                job.hung = f"no answer within {limit:.0f} s"
                job.silent = 0.0
                end_worker(ref, places[job.announced_as])
            elif job.hung and job.silent > _TIME_TO_DIE:  # a process that cannot even be killed
                del running[ref]
                job.deaths += 1
                settled.append(self._again(job, running, job.hung))
        return settled

    def _settle(self, ref: Any, running: dict[Any, _Job[Key]]) -> Outcome[Key, Any] | None:
        """An outcome, unless the item has to be tried again."""
        job = running.pop(ref)
        forget(job.announced_as)
        errors = self._ray.exceptions
        try:
            reply: Reply = self._ray.get(ref)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.TaskCancelledError) as error:
            job.deaths += 1
            manner = "out of memory" if isinstance(error, errors.OutOfMemoryError) else "crashed or killed"
        except (errors.NodeDiedError, errors.ObjectLostError):
            job.losses += 1
            manner = "its node was lost"
        except errors.RayTaskError as error:
            raise InputError(_unfit("a node", str(error))) from error
        except errors.RayError as error:
            raise DeepPruningError(f"Ray could not run item {job.key!r}: {error}") from error
        else:
            return self._accept(job, reply)
        return self._again(job, running, job.hung or manner)

    def _again(self, job: _Job[Key], running: dict[Any, _Job[Key]], manner: str) -> Outcome[Key, Any] | None:
        """Try an item once more, or call it failed by the manner of the last of too many deaths."""
        if job.deaths < DEATHS_ALLOWED and job.losses < LOSSES_ALLOWED:
            self._submit(job, running)
            return None
        count = job.deaths if job.deaths >= DEATHS_ALLOWED else job.losses
        failure = f"worker died {count} times (last: {manner})"
        seconds = time.perf_counter() - job.started
        return Outcome(job.key, None, failure, seconds, "", job.attempts - 1)

    def _accept(self, job: _Job[Key], reply: Reply) -> Outcome[Key, Any]:
        if reply.node not in self._names:  # it joined a moment ago
            self._names |= ray_nodes.names(ray_nodes.alive())
        node = self._names.get(reply.node, reply.node[:8])
        if reply.problem:
            raise InputError(_unfit(f"node {node}", reply.problem))
        try:
            value, failure, seconds = pickle.loads(reply.answer)
        except Exception as error:
            value, seconds = None, time.perf_counter() - job.started
            failure = f"the worker's answer cannot be read here: {error!r}"
        if failure is None:
            self._time_limit.note(job.kind, seconds)
        return Outcome(job.key, value, failure, seconds, f"{node}:{reply.pid}", job.attempts)


def _store(function: object, context: object) -> Any:
    """A reference to the function and its context in the object store of this machine's node."""
    ray = import_ray()
    try:
        parcel = pack_array((function, context))
    except Exception as error:
        raise InputError(
            f"the function or its data cannot be sent to other machines ({error!r}); use the local backend "
            "with workers=1 to stay in this process, or leave out what cannot be sent (open files, locks, "
            "generators)"
        ) from error
    try:
        return ray.put(parcel)
    except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError) as error:
        raise InputError(
            f"the data set and the network take {parcel.nbytes / 1e6:.0f} MB, more than Ray's object store "
            "holds; start the nodes with a larger --object-store-memory"
        ) from error


def _request(key: object, item: object) -> bytes:
    try:
        return bytes(cloudpickle.dumps(item))
    except Exception as error:
        raise InputError(
            f"item {key!r} cannot be sent to another machine ({error!r}); use the local backend with "
            "workers=1 to stay here"
        ) from error


def _unfit(node: str, said: str) -> str:
    return (
        f"{node} could not rebuild the function and its data; install there what is installed here, or take "
        f"the node out of the cluster. It said:\n{said}"
    )


def _warn(remark: str) -> None:
    warnings.warn(remark, RuntimeWarning, stacklevel=4)
