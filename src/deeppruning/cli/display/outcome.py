"""The end of a run on the command line: the four networks side by side, and what can be done next."""

import importlib.util
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from deeppruning.cli.display.amounts import amount, percent
from deeppruning.cli.display.archive import sources_line
from deeppruning.cli.display.progress import SearchProgress
from deeppruning.cli.main import COMMANDS
from deeppruning.errors import DeepPruningError
from deeppruning.objectives.latency import measure_latency
from deeppruning.pruning.result import Result
from deeppruning.roles import ORIGINAL, ROLES, TARGET
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import RunFolder
from deeppruning.system.device import precision_of
from deeppruning.system.threads import torch_threads

_SLOW_SECONDS = 0.5  # a forward pass beyond this is not measured: the table must come at once


@dataclass(frozen=True)
class NetworkRow:
    """One network of the final table."""

    network: str
    candidate: int | None
    test_error: float | None
    flops: int
    flops_pruned: float
    params: int
    latency_seconds: float | None = None
    failure: str = ""  # why there is no such network


def conclude(run_dir: Path, progress: SearchProgress) -> None:
    """Show a finished run: its table, its report and the commands to try next."""
    rows = read_rows(run_dir)
    report = _write_report(run_dir, progress)
    entered = sources_line(run_dir)
    lines = [table(rows), *_notes(rows), *target_note(run_dir)]
    lines += [f"entered the archive: {entered}"] if entered else []
    lines.append(f"run folder: {run_dir}")
    if report is not None:
        lines.append(f"report: {report}")
    lines += [f"next: {command}" for command in _next_commands(run_dir)]
    progress.finish([asdict(row) for row in rows], str(report) if report else None, "\n".join(lines))


def read_rows(run_dir: Path, roles: tuple[str, ...] | None = None) -> list[NetworkRow]:
    """The original and these solutions of a run, by default the picks and its target, from its history."""
    with RunFolder.open(run_dir, read_only=True) as run:
        kept = run.history.facts()
        with readable_errors(run.history.path):  # facts that are not there
            return _rows(kept, roles)


def target_note(run_dir: Path) -> list[str]:
    """What became of the limits that were asked for, where there were any, as a line."""
    with RunFolder.open(run_dir, read_only=True) as run:
        known = run.history.get_fact(facts.TARGET)
    return [] if known is None else [f"target {known['asked']}: {known['note']}"]


def _rows(kept: Mapping[str, Any], roles: tuple[str, ...] | None) -> list[NetworkRow]:
    targeted = facts.solution_fact(TARGET).key in kept
    roles = roles or (*ROLES, *((TARGET,) if targeted else ()))
    original, latency = kept[facts.ORIGINAL_FIGURES.key], kept.get(facts.LATENCY.key, {})
    rows = [
        NetworkRow(ORIGINAL, None, original.get("test_error"), original["flops"], 0.0, original["params"],
            latency.get(ORIGINAL), original.get("failure", ""))
    ]  # fmt: skip
    for role in roles:
        found: facts.SolutionFigures = kept[facts.solution_fact(role).key]
        numbers = (found["test_error"], found["flops"], found["flops_pruned"], found["params"])
        rows.append(NetworkRow(role, found["id"], *numbers, latency.get(role), found.get("failure", "")))
    return rows


def table(rows: list[NetworkRow]) -> str:
    """The rows as text; a column that lacks a number is left out.

    >>> print(table([NetworkRow("original", None, 0.0664, 125_000_000, 0.0, 850_000)]))
    network   test error     FLOPs  FLOPs saved  parameters
    original      6.64 %  125.00 M            -     850,000
    """
    measured = any(row.latency_seconds is not None for row in rows)
    columns: list[list[str]] = [
        ["network", *(row.network for row in rows)],
        ["test error", *("failed" if row.failure else percent(row.test_error) for row in rows)],
        ["FLOPs", *(amount(row.flops, like=rows[0].flops) for row in rows)],
        ["FLOPs saved", *("-" if row.candidate is None else percent(row.flops_pruned, 1) for row in rows)],
        ["parameters", *(f"{row.params:,}" for row in rows)],
        [
            "latency",
            *("-" if row.failure and measured else _milliseconds(row.latency_seconds) for row in rows),
        ],
    ]
    columns = [column for column in columns if all(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        padded = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append("  ".join([cells[0].ljust(widths[0]), *padded]))
    return "\n".join(lines)


def keep_latencies(result: Result, original: nn.Module, example: torch.Tensor) -> None:
    """Measure the four networks in turns, one input and one thread on the processor; the run keeps it."""
    example = example.to(precision_of(original))
    models = {ORIGINAL: original.cpu(), **{one.role: one.model.cpu() for one in result.solutions}}
    with torch_threads(1):
        if _seconds_of_one(original, example) > _SLOW_SECONDS:
            return
        # In turns, so that a busy moment of the machine does not fall on one of them alone.
        turns = [
            {name: measure_latency(model, example, runs=5) for name, model in models.items()}
            for _ in range(5)
        ]
    medians = {name: float(np.median([turn[name] for turn in turns])) for name in models}
    with RunFolder.open(result.run_dir) as run:
        run.history.set_fact(facts.LATENCY, medians)


def _seconds_of_one(model: nn.Module, example: torch.Tensor) -> float:
    start = time.perf_counter()
    measure_latency(model, example, runs=1)
    return (time.perf_counter() - start) / 4  # three warm-ups and the one that counts


def _notes(rows: list[NetworkRow]) -> list[str]:
    measured = any(row.latency_seconds is not None for row in rows)
    notes = ["(latency: one image, one processor thread, median)"] if measured else []
    return notes + [f"{row.network} failed: {row.failure}" for row in rows if row.failure]


def _write_report(run_dir: Path, progress: SearchProgress) -> Path | None:
    """The report's path; a report that cannot be written must not hide what the run came to."""
    if importlib.util.find_spec("deeppruning.reporting") is None:
        return None
    try:
        return Path(importlib.import_module("deeppruning.reporting").write_report(run_dir))
    except (DeepPruningError, ImportError) as error:
        progress.say(f"no report was written: {error}")
        return None


def _next_commands(run_dir: Path) -> list[str]:
    commands = {
        "export": f"deeppruning export {shlex.quote(str(run_dir))} --solution knee --format onnx",
        "bench": f"deeppruning bench {shlex.quote(str(run_dir))}",
        "pick": f"deeppruning pick {shlex.quote(str(run_dir))} --target flops=40%  (or another limit)",
        "finetune": f"deeppruning finetune {shlex.quote(str(run_dir))} --candidate ID  (any other candidate)",
    }
    return [text for command, text in commands.items() if command in COMMANDS]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.2f} ms"
