"""Which public networks the channel graph can cut, beside what Torch-Pruning makes of them.

    python benchmarks/coverage.py                                   # all, a line each as they finish
    python benchmarks/coverage.py timm/dla34 torchvision/vgg16      # some
    python benchmarks/coverage.py --json coverage.jsonl --markdown docs/coverage.md
    python benchmarks/coverage.py --only ours --markdown docs/coverage.md   # Torch-Pruning as the file has it

Each network runs twice (once for each tool) in a process of its own with a time limit, so that none
can stop the table. `--markdown` replaces what lies between the two markers of the file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import multiprocessing
import platform
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from coverage_networks import NETWORKS, import_libraries, missing_packages
from coverage_table import read_rivals, render, sentence
from coverage_trial import run

Row = dict[str, Any]
PATIENCE = 10  # how much longer than the processor time it is allowed a process may last on a busy machine
TOOLS = ("ours", "torch_pruning")
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def measure(key: str, limit: int, tools: Sequence[str], before: Row) -> Row:
    """These tools on one network; what an earlier run found of the other stays."""
    found = {tool: _trial(tool, key, limit) for tool in tools}
    return {"network": key, "size": NETWORKS[key].size, **before, **found}


def _trial(tool: str, key: str, limit: int) -> Row:
    # Forked, so that the imports, which take longer than most networks, are paid for once.
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_row, args=(sender, tool, key, limit))
    process.start()
    sender.close()
    row: Row = {"error": f"not done after {PATIENCE * limit} s"}
    if receiver.poll(PATIENCE * limit):
        try:
            row = receiver.recv()
        except EOFError:
            process.join()
            stopped = process.exitcode == -signal.SIGXCPU
            row = {"error": f"took more than {limit} s" if stopped else f"died with code {process.exitcode}"}
    process.kill()
    process.join()
    return row


def _send_row(sender: Connection, tool: str, key: str, limit: int) -> None:
    sender.send(run(tool, key, limit))


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


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of an earlier run."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return {row["network"]: row for row in rows}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("networks", nargs="*", help="such as timm/dla34; all if none is given")
    parser.add_argument("--limit", type=int, default=120, help="seconds of processor time a run")
    parser.add_argument(
        "--json", type=Path, help="keep one line of JSON for each network; lines of others stay"
    )
    parser.add_argument("--markdown", type=Path, help="write the table into this file")
    parser.add_argument("--only", choices=TOOLS, help="measure one tool; the files have the other")
    parser.add_argument("--table-only", action="store_true", help="do not measure, only write the table")
    options = parser.parse_args()
    tools = (options.only,) if options.only else TOOLS
    unknown = [key for key in options.networks if key not in NETWORKS]
    if unknown:
        sys.exit(f"unknown network {unknown[0]!r}; the table knows: {', '.join(NETWORKS)}")
    rows = read_rows(options.json) if options.json and options.json.exists() else {}
    rivals: dict[str, Row] = {}
    if options.markdown and options.markdown.exists():
        rivals = read_rivals(options.markdown.read_text(encoding="utf-8").partition(BEGIN)[2])
    if not options.table_only:
        problem = missing_packages()
        if problem:
            sys.exit(problem)
        import_libraries()
        for key in options.networks or NETWORKS:
            known = {"torch_pruning": rivals[key]} if key in rivals else {}
            rows[key] = measure(key, options.limit, tools, known | rows.get(key, {}))
            sys.stdout.write(sentence(rows[key]) + "\n")
            sys.stdout.flush()
            if options.json:
                lines = [json.dumps(rows[key]) + "\n" for key in NETWORKS if key in rows]
                options.json.write_text("".join(lines), encoding="utf-8")
    if options.markdown:
        write_markdown(options.markdown, [rows[key] for key in NETWORKS if key in rows])


if __name__ == "__main__":
    main()
