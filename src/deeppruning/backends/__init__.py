"""Backends map a function over items: in this process, in a pool of local processes, on a Ray cluster."""

from deeppruning.backends.base import Backend, Outcome, Session
from deeppruning.backends.inprocess import InProcessBackend
from deeppruning.backends.pool.backend import PoolBackend
from deeppruning.backends.ray.backend import RayBackend

__all__ = ["Backend", "InProcessBackend", "Outcome", "PoolBackend", "RayBackend", "Session"]
