"""Keep freed memory in the process, so that training steps do not ask the system for it anew.

glibc gives large freed blocks back to the kernel. A training step frees and asks again for hundreds of
megabytes of activations, and each page then faults and is zeroed once more. What keeping them saves
depends on network and machine: compare benchmarks/training.py with and without --no-allocator.
"""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to hold on to freed memory; False where there is no glibc or the user has set its own.

    Called by the command line before training starts: a library must not change the whole process
    behind the back of a program that merely imports it.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if not sys.platform.startswith("linux") or chosen:
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # glibc before 2.35 refuses more than 32 MB for the first one.
    held = mallopt(_M_MMAP_THRESHOLD, 2**30) or mallopt(_M_MMAP_THRESHOLD, 2**25)
    return bool(held) and bool(mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT))
