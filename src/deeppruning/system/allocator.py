"""Freed memory: kept in the process while training steps request it again, given back before something else.

glibc returns large freed blocks to the kernel. A training step frees and reallocates hundreds of megabytes
of activations, and every page then faults and is zeroed again. Each thread has a heap of its own, too small
for such blocks, and the parts of a refit run in threads: one heap serves them all. What this saves depends on
network and machine: compare benchmarks/training.py with and without --no-allocator.
"""

import ctypes
import os
import platform
import re
import sys
from typing import Any

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_INT = 2**31 - 1


def largest_block(library: str, version: str) -> int:
    """The largest block that a C library can be told to keep: glibc before 2.35 refuses more than 32 MB.

    >>> largest_block("glibc", "2.31") // 2**20, largest_block("glibc", "2.36") // 2**20
    (32, 1024)
    """
    old = library == "glibc" and [int(number) for number in re.findall(r"\d+", version)[:2]] < [2, 35]
    return 2**25 if old else 2**30


_LARGEST_BLOCK = largest_block(*platform.libc_ver())


# The same for a process that is to be started.
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": str(_LARGEST_INT),
    "MALLOC_MMAP_THRESHOLD_": str(_LARGEST_BLOCK),
    "MALLOC_ARENA_MAX": "1",
}


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory; False where there is no glibc or the user has configured it.

    Called by the command line before any work starts: a library must not change the process of a program
    that only imports it.
    """
    configured = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    mallopt = _of_glibc("mallopt")
    if mallopt is None or configured:
        return False
    accepted = mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
    return bool(accepted and mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT) and mallopt(_M_ARENA_MAX, 1))


def release_freed_memory() -> bool:
    """Give freed memory back, before something that needs much in other pieces; whether there was any."""
    trim = _of_glibc("malloc_trim")
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


def _of_glibc(name: str) -> Any:
    """A function of glibc; None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL("libc.so.6"), name)
    except (OSError, AttributeError):
        return None
