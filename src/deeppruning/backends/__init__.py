"""Backends map a function over items: in this process, or in a pool of local processes."""

from deeppruning.backends.base import Backend, Outcome, Session
from deeppruning.backends.inprocess import InProcessBackend
from deeppruning.backends.pool import PoolBackend

__all__ = ["Backend", "InProcessBackend", "Outcome", "PoolBackend", "Session"]
