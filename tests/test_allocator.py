"""Freed memory is kept for the next training step, and given back on request."""

import subprocess
import sys

import pytest

from deeppruning.system.allocator import release_freed_memory

SCRIPT = """
from deeppruning.system.allocator import keep_freed_memory, release_freed_memory

def resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

print(int(keep_freed_memory()))
import numpy as np
before = resident()
pieces = [np.ones(2**20, dtype=np.uint8) for _ in range(200)]
del pieces
kept = resident() - before
release_freed_memory()
print(kept, resident() - before)
"""


THREADS = """
import resource
from threading import Thread

from deeppruning.system.allocator import keep_freed_memory

print(int(keep_freed_memory()))
import numpy as np

def faults_of_thread() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = Thread(target=lambda: np.ones(16 * 2**20, dtype=np.uint8))
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults_of_thread(), faults_of_thread())
"""


def figures(script: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept, *rest = (int(figure) for figure in done.stdout.split())
    if not kept:
        pytest.skip("there is no glibc, or its allocator is configured by a variable")
    return rest


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks glibc, of Linux")
def test_freed_memory_is_kept_until_it_is_released():
    kept, left = figures(SCRIPT)
    assert kept > 190_000 and left < 20_000  # kB, of 204,800


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks glibc, of Linux")
def test_threads_reuse_the_memory_of_other_threads():
    first, second = figures(THREADS)
    assert second < first / 2


def test_releasing_twice_does_no_harm():
    release_freed_memory()
    assert release_freed_memory() in (False, True)
