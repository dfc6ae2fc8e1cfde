"""Which public networks the channel graph can cut, beside what Torch-Pruning makes of them.

    python benchmarks/coverage.py                                   # all, a line each as they finish
    python benchmarks/coverage.py timm/dla34 torchvision/vgg16      # some
    python benchmarks/coverage.py --json coverage.jsonl --markdown docs/coverage.md

Each network runs twice (once for each tool) in a process of its own with a time limit, so that none
can stop the table. `--markdown` replaces what lies between the two markers of the file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coverage_networks import NETWORKS, missing_packages
from coverage_table import render, sentence

Row = dict[str, Any]
PATIENCE = 10  # how much longer than the processor time it is allowed a process may last on a busy machine
TOOLS = ("ours", "torch_pruning")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def measure(key: str, limit: int) -> Row:
    """Both tools on one network."""
    return {"network": key, "size": NETWORKS[key].size, **{tool: _trial(tool, key, limit) for tool in TOOLS}}


def _trial(tool: str, key: str, limit: int) -> Row:
    script = Path(__file__).with_name("coverage_trial.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, str(script), tool, key, str(limit)],
            capture_output=True,
            text=True,
            timeout=PATIENCE * limit,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {PATIENCE * limit} s"}
    if done.returncode == -signal.SIGXCPU:
        return {"error": f"took more than {limit} s"}
    try:
        row: Row = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"error": f"died with code {done.returncode}: {done.stderr[-200:]}"}
    return row


def versions() -> str:
    """One sentence on what the table was made with."""
    packages = ("torch", "torchvision", "timm", "torch-pruning")
    found = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    return f"Made on {today} with {found}, Python {platform.python_version()}, one thread of a CPU."


def write_markdown(path: Path, rows: Sequence[Row]) -> None:
    """Put the table between the markers, leaving the text around it alone."""
    table = f"{BEGIN}\n{versions()}\n\n{render(rows)}\n{END}"
    text = path.read_text(encoding="utf-8") if path.exists() else f"{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        sys.exit(f"{path} has no line {BEGIN} ... {END} to put the table in")
    before, rest = text.split(BEGIN, 1)
    path.write_text(before + table + rest.split(END, 1)[1], encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", help="such as timm/dla34; all if none is given")
    parser.add_argument("--limit", type=int, default=120, help="seconds of processor time a run")
    parser.add_argument("--json", type=Path, help="write one line of JSON for each network")
    parser.add_argument("--markdown", type=Path, help="write the table into this file")
    parser.add_argument("--from-json", type=Path, help="do not measure, take the rows of an earlier run")
    options = parser.parse_args()
    unknown = [key for key in options.networks if key not in NETWORKS]
    if unknown:
        sys.exit(f"unknown network {unknown[0]!r}; the table knows: {', '.join(NETWORKS)}")
    if options.from_json:
        rows = read_rows(options.from_json)
    else:
        problem = missing_packages()
        if problem:
            sys.exit(problem)
        rows = []
        for key in options.networks or NETWORKS:
            rows.append(measure(key, options.limit))
            sys.stdout.write(sentence(rows[-1]) + "\n")
            sys.stdout.flush()
            if options.json:
                options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if options.markdown:
        write_markdown(options.markdown, rows)


if __name__ == "__main__":
    main()
