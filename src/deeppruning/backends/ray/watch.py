"""Which items of a session run on a Ray cluster, in which process of which node, and an end to one of them.

Ray does not say when a task leaves its queue, and asks a process that is to end to do so by itself, which
one that is stopped never does. So whoever begins with an item leaves a note in the cluster's key-value
store, and a hung process is killed by a small task on its node.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from deeppruning.backends.ray.connection import import_ray

_NAMESPACE = "deeppruning"


class Place(NamedTuple):
    """Where an item runs."""

    node: str  # Ray's id of it
    pid: int


def announce(name: str, node: str) -> None:
    """Say, on a node, that the item of this name runs here."""
    _store()._internal_kv_put(name, f"{node} {os.getpid()}", namespace=_NAMESPACE)


def announced(session: str) -> dict[str, Place]:
    """The items of a session that run, or have run and are not forgotten yet."""
    store = _store()
    places = {}
    for name in store._internal_kv_list(f"{session}/", namespace=_NAMESPACE):
        note = store._internal_kv_get(name, namespace=_NAMESPACE)
        if note:
            node, pid = note.decode().split()
            places[name.decode()] = Place(node, int(pid))
    return places


def forget(name: str) -> None:
    """Remove the note on an item."""
    _store()._internal_kv_del(name, namespace=_NAMESPACE)


def forget_all(session: str) -> None:
    """Remove all notes of a session."""
    _store()._internal_kv_del(f"{session}/", del_by_prefix=True, namespace=_NAMESPACE)


def end_worker(task: Any, place: Place) -> None:
    """Kill the process that runs a task, without waiting for that."""
    ray = import_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(place.node, soft=False)
    ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(_make_killer()).remote(place.pid)
    ray.cancel(task, force=True)  # in case that no process can be started there


def _make_killer() -> Callable[[int], None]:
    """A function that travels by its code, so that a node need not import torch to run it."""

    def kill(pid: int) -> None:
        about = Path(f"/proc/{pid}/cmdline")
        # The number may have passed on to a stranger's process since.
        if not about.parent.parent.exists() or (about.exists() and b"ray::" in about.read_bytes()):
            os.kill(pid, signal.SIGKILL)

    return kill


def _store() -> Any:
    from ray.experimental import internal_kv

    return internal_kv
