"""What runs on a node of a Ray cluster: look around there once, then answer item after item."""

import os
import platform
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deeppruning.backends.parcel import unpack_array
from deeppruning.backends.pool.worker import answer_item
from deeppruning.backends.ray.watch import announce
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import torch_threads
from deeppruning.system.versions import processor
from deeppruning.version import __version__

# The parcel this process has unpacked, by name: one at a time, because a session replaces the last one.
_held: tuple[str, tuple[Any, Any]] = ("", (None, None))


class Reply(NamedTuple):
    """What comes back from a node: an answer, or the problem that keeps the node from giving any."""

    node: str  # Ray's id of it
    pid: int
    problem: str
    answer: bytes  # the pickled (value, failure, seconds)


def versions() -> dict[str, str]:
    """What must be the same on all nodes for results to be the same, and for pickles to be readable."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        # The build (+cpu, +cu130) may differ: a driver often has no GPU.
        "torch": torch.__version__.partition("+")[0],
        "deeppruning": __version__,
    }


def describe() -> dict[str, str]:
    """The versions, the processor, and torch's kind of GPU."""
    gpu = torch.version.cuda or torch.version.hip or ""
    return {**versions(), "processor": processor(), "gpu": gpu}


def make_probe() -> Callable[[], dict[str, str]]:
    """A function for a node that may not have this package: it travels by its code, not by its name."""

    def probe() -> dict[str, str]:
        try:
            from deeppruning.version import __version__ as version
        except ImportError as error:
            return {"missing": str(error)}
        try:
            from deeppruning.backends.ray.worker import describe
        except ImportError as error:
            return {"deeppruning": version, "missing": str(error)}
        return describe()

    return probe


def answer(
    parcel: NDArray[np.uint8],
    name: str,
    request: bytes,
    threads: int,
    expected: Mapping[str, str],
    announced_as: str,
) -> Reply:
    """Run the function of the parcel on one item; the parcel is unpacked once in the life of a process.

    The versions are looked at here too, because nodes may join long after the first look.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    announce(announced_as, node)
    try:
        function, context = _open(parcel, name, expected)
    except Exception:
        return Reply(node, os.getpid(), traceback.format_exc(), b"")
    with torch_threads(threads):
        return Reply(node, os.getpid(), "", answer_item(function, context, request))


def _open(parcel: NDArray[np.uint8], name: str, expected: Mapping[str, str]) -> tuple[Any, Any]:
    global _held
    if _held[0] != name:
        _held = ("", (None, None))  # the old data set must not stay while the new one comes
        if versions() != expected:
            raise ImportError(f"this node has {versions()}, the program that sent the work has {expected}")
        keep_freed_memory()
        _held = (name, unpack_array(parcel))
    return _held[1]
