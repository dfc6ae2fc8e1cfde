"""The end of a run on the command line: the four networks side by side, and what can be done next."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deeppruning.display.archive import sources_line
from deeppruning.display.next_steps import next_lines
from deeppruning.display.progress import SearchProgress
from deeppruning.errors import DeepPruningError
from deeppruning.jobs.network_table import NetworkRow, NetworkTable
from deeppruning.jobs.result import Result
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_both_forms, measure_networks
from deeppruning.reporting import missing_plots_line, write_report
from deeppruning.reporting.recommendation import Recommendation, recommend
from deeppruning.roles import KNEE, ORIGINAL, ROLES, in_order
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import RunFolder
from deeppruning.system.device import precision_of

FORMS = (
    "(latency: one image in PyTorch, one processor thread, the least of some; as exported, with batch norms "
    "folded; as loaded: as dp.load returns it)"
)
_SLOW_SECONDS = 0.5  # a forward pass beyond this is not measured: the table must come at once


def conclude(run_dir: Path, progress: SearchProgress) -> None:
    """Show a finished run: its table, its report and the commands to try next."""
    rows = read_rows(run_dir)
    report = write_report_or_say(run_dir, progress)
    entered = sources_line(run_dir)
    advice = _recommendation(run_dir)
    lines = [
        NetworkTable(rows).text(),
        *_notes(rows),
        *untuned_notes(run_dir),
        *choice_notes(run_dir),
        *([advice.text] if advice else []),
    ]
    more = [f"entered the archive: {entered}"] if entered else []
    more += [f"run folder: {run_dir}", *([f"report: {report}"] if report else [])]
    more += filter(None, [missing_plots_line()])
    none = advice is not None and advice.none
    more += next_lines(run_dir, None if none else (advice and advice.role) or KNEE)
    progress.finish([asdict(row) for row in rows], str(report) if report else None, "\n".join(lines), more)


def read_rows(run_dir: Path, roles: tuple[str, ...] | None = None) -> list[NetworkRow]:
    """The original and these solutions of a run, by default the picks and its targets, from its history."""
    with RunFolder.open(run_dir, read_only=True) as run:
        kept = run.history.facts()
        with readable_errors(run.history.path):  # facts that are not there
            return _rows(kept, roles)


def choice_notes(run_dir: Path) -> list[str]:
    """What became of the limits that were asked for, and which candidates were refused, a line for each."""
    with RunFolder.open(run_dir, read_only=True) as run:
        kept = run.history.facts()
    refused = [facts.told_refused(id_, why) for id_, why in facts.refused_in(kept).items()]
    return [*facts.told_targets(kept), *refused]


def _rows(kept: Mapping[str, Any], roles: tuple[str, ...] | None) -> list[NetworkRow]:
    if roles is None:
        saved = (facts.solution_role(key) or "" for key in kept)
        roles = tuple(in_order((*ROLES, *saved)))
    original, latency = kept[facts.ORIGINAL_FIGURES.key], kept.get(facts.LATENCY.key, {})
    loaded = kept.get(facts.LATENCY_LOADED.key, {})
    rows = [
        NetworkRow(ORIGINAL, None, original.get("test_error"), original["flops"], 0.0, original["params"],
            latency.get(ORIGINAL), original.get("failure", ""), loaded.get(ORIGINAL))
    ]  # fmt: skip
    for role in roles:
        found: facts.SolutionFigures = kept[facts.solution_fact(role).key]
        numbers = (found["test_error"], found["flops"], found["flops_pruned"], found["params"])
        failure = found.get("failure", "")
        rows.append(NetworkRow(role, found["id"], *numbers, latency.get(role), failure, loaded.get(role)))
    return rows


def keep_latencies(result: Result, original: nn.Module, example: torch.Tensor) -> None:
    """Measure the networks in turns, one input and one thread on the processor; the run keeps it.

    A candidate that holds several roles is one network, and has one speed.
    """
    example = example.to(precision_of(original))
    models: dict[int | None, nn.Module] = {None: original.cpu()}
    models |= {one.id: one.model.cpu() for one in result.solutions}
    if measure_networks([original], example, Conditions(), turns=1)[0] > _SLOW_SECONDS:
        return
    found = dict(zip(models, measure_both_forms(list(models.values()), example), strict=True))
    holders = {ORIGINAL: None, **{one.role: one.id for one in result.solutions}}
    with RunFolder.open(result.run_dir) as run:
        run.history.set_fact(facts.LATENCY, {role: found[id_][0] for role, id_ in holders.items()})
        run.history.set_fact(facts.LATENCY_LOADED, {role: found[id_][1] for role, id_ in holders.items()})


def _notes(rows: list[NetworkRow]) -> list[str]:
    measured = any(row.latency_seconds is not None for row in rows)
    notes = [FORMS] if measured else []
    return notes + [f"{row.network} failed: {row.failure}" for row in rows if row.failure]


def untuned_notes(run_dir: Path, roles: tuple[str, ...] | None = None) -> list[str]:
    """Which networks are as they were before fine-tuning, a line each; and what it was tried without."""
    with RunFolder.open(run_dir, read_only=True) as run:
        kept = run.history.facts()
    if roles is None:
        roles = tuple(in_order(facts.solution_role(key) or "" for key in kept))
    known = {role: kept.get(facts.solution_fact(role).key, {}) for role in roles}
    # A candidate that holds several roles is told of once.
    holders: dict[Any, list[str]] = {}
    for role, figures in known.items():
        if facts.told_unhelped(figures):
            holders.setdefault(figures["id"], []).append(role)
    return [f"{', '.join(held)}: {facts.told_unhelped(known[held[0]])}" for held in holders.values()]


def write_report_or_say(run_dir: Path, progress: SearchProgress) -> Path | None:
    """The report's path; a report that cannot be written must not hide what the run came to."""
    try:
        return write_report(run_dir)
    except DeepPruningError as error:
        progress.say(f"no report was written: {error}")
        return None


def _recommendation(run_dir: Path) -> Recommendation | None:
    with RunFolder.open(run_dir, read_only=True) as run:
        return recommend(run.history.facts())
