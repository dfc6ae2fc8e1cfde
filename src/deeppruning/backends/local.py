"""The backend on this machine: in this process for one worker, a pool of processes for more."""

from deeppruning.backends.base import Backend
from deeppruning.backends.inprocess import InProcessBackend
from deeppruning.backends.limits import AUTO, OFF
from deeppruning.backends.pool.backend import PoolBackend
from deeppruning.backends.registry import BACKENDS, LOCAL, BackendKind, Wanted
from deeppruning.system.device import default_workers


def local_backend(wanted: Wanted) -> Backend:
    """The simplest that will do."""
    workers = default_workers(wanted.threads) if wanted.workers is None else wanted.workers
    # A limit that was asked for in seconds needs a process that can be killed.
    if workers == 1 and wanted.timeout in (AUTO, OFF):
        return InProcessBackend(threads=wanted.threads)
    return PoolBackend(workers=workers, threads=wanted.threads, timeout=wanted.timeout)


BACKENDS.add(BackendKind(LOCAL, "processes of this machine", local_backend), place=10)
