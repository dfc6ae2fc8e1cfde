"""Backends map a function over items: in this process, in a pool of local processes, on a Ray cluster."""

from deeppruning.backends.base import Backend, Outcome, Session
from deeppruning.backends.local import InProcessBackend
from deeppruning.backends.pool import PoolBackend
from deeppruning.backends.ray import RayBackend

__all__ = ["Backend", "InProcessBackend", "Outcome", "PoolBackend", "RayBackend", "Session"]
