"""Keep freed memory in the process, so that training steps do not request it from the system again.

glibc returns large freed blocks to the kernel. A training step frees and reallocates hundreds of megabytes
of activations, and every page then faults and is zeroed again. What this saves depends on network and
machine: compare benchmarks/training.py with and without --no-allocator.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory; False where there is no glibc or the user has configured it.

    Called by the command line before training starts: a library must not change the process of a program
    that only imports it.
    """
    configured = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if not sys.platform.startswith("linux") or configured:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # glibc before 2.35 refuses more than 32 MB here.
    accepted = mallopt(_M_MMAP_THRESHOLD, 2**30) or mallopt(_M_MMAP_THRESHOLD, 2**25)
    return bool(accepted) and bool(mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT))
