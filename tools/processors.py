"""Runs the tests as other processors would: fewer instructions, more threads, alone and under load.

`python tools/processors.py` runs all of them, which takes as many times as long as `make test`;
`python tools/processors.py --only plain tests/jobs` one kind, on some of the tests.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# What torch, oneDNN and MKL may use; nothing changes where a processor has no more than that.
KINDS = {
    "default": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "plain": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}
THREADS = (1, 2, 4)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that do nothing but keep the cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(kind: str, threads: int, busy: int, tests: list[str]) -> bool:
    """One row: whether all tests held, told with the time they took."""
    environment = {**os.environ, **KINDS[kind], "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "pytest", "-n", "3", "--dist", "worksteal", "-q", *tests]
    started = time.monotonic()
    with load(busy):
        code = subprocess.run(command, env=environment, check=False).returncode
    told = "passed" if code == 0 else f"FAILED ({code})"
    print(f"{kind:8} {threads} threads  {busy} busy  {told}  {time.monotonic() - started:.0f} s", flush=True)
    return code == 0


def main() -> int:
    """All rows, or those of one kind; fails where one of them does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=KINDS, help="one kind of processor, with one thread and no load")
    parser.add_argument("tests", nargs="*", help="files or folders of tests, all where none are given")
    given = parser.parse_args()
    rows = list(itertools.product(KINDS, THREADS, (0, os.cpu_count() or 1)))
    rows = [(given.only, 1, 0)] if given.only else rows
    held = [run(kind, threads, busy, given.tests) for kind, threads, busy in rows]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
