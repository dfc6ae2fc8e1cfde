"""What runs on the nodes of a Ray cluster: a check of the node, and the worker that answers items."""

import os
import platform
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deeppruning.backends.base import answer_item
from deeppruning.backends.parcel import unpack_array
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.system.device import torch_threads
from deeppruning.system.versions import processor
from deeppruning.version import __version__


class Place(NamedTuple):
    """Where a worker runs, and the problem that keeps it from working, if there is one."""

    node: str  # Ray's id of it
    pid: int
    problem: str | None


class NodeWorker:
    """A Ray actor that holds the function and context of one session at a time and answers its items."""

    def __init__(self) -> None:
        self._session: tuple[Any, Any] | None = None
        self._threads = 1

    def open(self, parcel: NDArray[np.uint8], threads: int, expected: Mapping[str, str]) -> Place:
        """Unpack a session's function and context; versions are checked, as nodes may join at any time."""
        import ray

        problem = None
        self._session = None  # the old data set must not stay while the new one comes
        self._threads = threads
        try:
            if versions() != expected:
                raise ImportError(
                    f"this node has {versions()}, the program that sent the work has {expected}"
                )
            keep_freed_memory()
            self._session = unpack_array(parcel)
        except Exception:
            problem = traceback.format_exc()
        return Place(ray.get_runtime_context().get_node_id(), os.getpid(), problem)

    def answer(self, request: bytes) -> bytes:
        """Call the function on a pickled item."""
        assert self._session is not None
        function, context = self._session
        with torch_threads(self._threads):
            return answer_item(function, context, request)


def versions() -> dict[str, str]:
    """What must be equal on all nodes for results to be equal and for pickles to be readable."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        # The build (+cpu, +cu130) may differ: this machine often has no GPU.
        "torch": torch.__version__.partition("+")[0],
        "deeppruning": __version__,
    }


def describe() -> dict[str, str]:
    """The versions, the processor, and the kind of GPU that torch supports."""
    gpu = torch.version.cuda or torch.version.hip or ""
    return {**versions(), "processor": processor(), "gpu": gpu}


# The following are functions inside functions, so that Ray sends their code: a node may lack this package.


def make_probe() -> Callable[[], dict[str, str]]:
    """A function that describes the node it runs on."""

    def probe() -> dict[str, str]:
        try:
            from deeppruning.version import __version__ as version
        except ImportError as error:
            return {"missing": str(error)}
        try:
            from deeppruning.backends.ray_node import describe
        except ImportError as error:
            return {"deeppruning": version, "missing": str(error)}
        return describe()

    return probe


def make_killer() -> Callable[[int], None]:
    """A function that kills a process of its node; Ray only asks it to end, which a hung one cannot."""

    def kill(pid: int) -> None:
        about = Path(f"/proc/{pid}/cmdline")
        # The number may belong to another process by now.
        if not about.parent.parent.exists() or (about.exists() and b"ray::" in about.read_bytes()):
            os.kill(pid, signal.SIGKILL)

    return kill
