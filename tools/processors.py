"""Runs the tests as other processors would: fewer instructions, more threads, alone and under load.

`python tools/processors.py` runs all 18 rows, each as long as `make suite`, or longer under load;
`python tools/processors.py --only plain --threads 4 --load none tests/jobs` one row, on some of the tests.
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
    """Keep this many cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run(kind: str, threads: int, busy: int, tests: list[str]) -> bool:
    """Run one row, print its outcome and time, and return whether all tests passed."""
    # Threads that wait must not keep the cores from those they wait for: there are more threads than cores.
    several = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    environment = {**os.environ, **KINDS[kind], **several}
    command = [sys.executable, "-m", "pytest", "-n", "3", "--dist", "worksteal", "-q", *tests]
    started = time.monotonic()
    with load(busy):
        code = subprocess.run(command, env=environment, check=False).returncode
    outcome = "passed" if code == 0 else f"FAILED ({code})"
    seconds = time.monotonic() - started
    print(f"{kind:8} {threads} threads  {busy} busy  {outcome}  {seconds:.0f} s", flush=True)
    return code == 0


def main() -> int:
    """All rows, or those that were asked for; fails where one of them does."""
    loads = {"none": 0, "all": os.cpu_count() or 1}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=KINDS, help="one kind of processor")
    parser.add_argument("--threads", type=int, help="one number of threads")
    parser.add_argument("--load", choices=loads, help="only with no core, or with all cores, kept busy")
    parser.add_argument("tests", nargs="*", help="files or folders of tests; all by default")
    given = parser.parse_args()
    kinds = [given.only] if given.only else list(KINDS)
    threads = [given.threads] if given.threads else list(THREADS)
    busy = [loads[given.load]] if given.load else list(loads.values())
    held = [run(*row, given.tests) for row in itertools.product(kinds, threads, busy)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
