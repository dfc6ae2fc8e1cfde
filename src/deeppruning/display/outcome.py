"""The end of a run on the command line: the networks side by side, and commands to try next."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deeppruning.display.progress import SearchProgress
from deeppruning.display.state import sources_line
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.network_table import NetworkRow, NetworkTable
from deeppruning.jobs.result import Result
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_both_forms, measure_networks
from deeppruning.reporting import missing_plots_line, write_report
from deeppruning.reporting.recommendation import recommend
from deeppruning.roles import KNEE, ORIGINAL, ROLES, in_order
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.system.commands import command, format_to_suggest, how_to_install
from deeppruning.system.device import precision_of
from deeppruning.targets.choice import front_of, thin_ones

FORMS = (
    "(latency: one image in PyTorch, one CPU thread, fastest of several runs; as exported, with batch norms "
    "folded; as loaded: as dp.load returns it)"
)
_SLOW_SECONDS = 0.5  # a forward pass beyond this is not measured: the table must come at once
_USUAL_PERCENT = 40  # of the FLOPs: the limit that is suggested, if the search has come that far


def conclude(run_dir: Path, progress: SearchProgress) -> None:
    """Show a finished run: its table, its report and the commands to try next."""
    rows = read_rows(run_dir)
    report = write_report_or_say(run_dir, progress)
    entered = sources_line(run_dir)
    advice = recommend(_facts(run_dir))
    lines = [
        NetworkTable(rows).text(),
        *([FORMS] if any(row.latency_seconds is not None for row in rows) else []),
        *(f"{row.network} failed: {row.failure}" for row in rows if row.failure),
        *untuned_notes(run_dir),
        *choice_notes(run_dir),
        *([advice.text] if advice else []),
    ]
    more = [f"candidates that entered the archive: {entered}"] if entered else []
    more += [f"run folder: {run_dir}", *([f"report: {report}"] if report else [])]
    more += filter(None, [missing_plots_line()])
    none = advice is not None and advice.none
    more += next_lines(run_dir, None if none else (advice and advice.role) or KNEE)
    progress.finish([asdict(row) for row in rows], str(report) if report else None, "\n".join(lines), more)


def _facts(run_dir: Path) -> dict[str, Any]:
    with RunFolder.open(run_dir, read_only=True) as run:
        return run.history.facts()


def read_rows(run_dir: Path, roles: tuple[str, ...] | None = None) -> list[NetworkRow]:
    """The original and these solutions of a run, by default the picks and its targets, from its history."""
    with RunFolder.open(run_dir, read_only=True) as run:
        recorded = run.history.facts()
        with readable_errors(run.history.path):  # facts that are missing
            return _rows(recorded, roles)


def _rows(recorded: Mapping[str, Any], roles: tuple[str, ...] | None) -> list[NetworkRow]:
    if roles is None:
        saved = (facts.solution_role(key) or "" for key in recorded)
        roles = tuple(in_order((*ROLES, *saved)))
    networks = {ORIGINAL: recorded[facts.ORIGINAL_FIGURES.key]}
    networks |= {role: recorded[facts.solution_fact(role).key] for role in roles}
    latency = recorded.get(facts.LATENCY.key, {})
    loaded = recorded.get(facts.LATENCY_LOADED.key, {})
    return [
        NetworkRow(
            role,
            None if role == ORIGINAL else figures["id"],
            figures.get("test_error") if role == ORIGINAL else figures["test_error"],
            figures["flops"],
            0.0 if role == ORIGINAL else figures["flops_pruned"],
            figures["params"],
            latency.get(role),
            figures.get("failure", ""),
            loaded.get(role),
        )
        for role, figures in networks.items()
    ]


def choice_notes(run_dir: Path) -> list[str]:
    """What became of the targets, and which candidates were refused, a line each."""
    recorded = _facts(run_dir)
    refused = [facts.told_refused(id_, why) for id_, why in facts.refused_in(recorded).items()]
    return [*facts.told_targets(recorded), *refused]


def untuned_notes(run_dir: Path, roles: tuple[str, ...] | None = None) -> list[str]:
    """Which networks are as they were before fine-tuning, a line for each candidate, and what to try."""
    recorded = _facts(run_dir)
    if roles is None:
        roles = tuple(in_order(facts.solution_role(key) or "" for key in recorded))
    notes: dict[Any, tuple[list[str], str]] = {}
    for role in roles:
        figures = recorded.get(facts.solution_fact(role).key, {})
        if note := facts.told_unhelped(figures):
            notes.setdefault(figures["id"], ([], note))[0].append(role)
    return [f"{', '.join(held)}: {note}" for held, note in notes.values()]


def keep_latencies(result: Result, original: nn.Module, example: torch.Tensor) -> None:
    """Measure the networks in turn, one input and one CPU thread, and record it in the run.

    A candidate with several roles is one network, and has one speed.
    """
    example = example.to(precision_of(original))
    models: dict[int | None, nn.Module] = {None: original.cpu()}
    models |= {one.id: one.model.cpu() for one in result.solutions}
    if measure_networks([original], example, Conditions(), turns=1)[0] > _SLOW_SECONDS:
        return
    seconds = dict(zip(models, measure_both_forms(list(models.values()), example), strict=True))
    ids = {ORIGINAL: None, **{one.role: one.id for one in result.solutions}}
    with RunFolder.open(result.run_dir) as run:
        for place, fact in enumerate((facts.LATENCY, facts.LATENCY_LOADED)):
            run.history.set_fact(fact, {role: seconds[id_][place] for role, id_ in ids.items()})


def write_report_or_say(run_dir: Path, progress: SearchProgress) -> Path | None:
    """The report's path; a report that cannot be written must not hide the result of the run."""
    try:
        return write_report(run_dir)
    except DeepPruningError as error:
        progress.say(f"no report was written: {error}")
        return None


def next_lines(run_dir: Path, role: str | None) -> list[str]:
    """Commands to try next, a line each, that work as they stand; `role` is the network to take, if any."""
    with RunFolder.open(run_dir, read_only=True) as run:
        recorded, candidates = run.history.facts(), run.history.candidates()
    roles = {facts.solution_role(key): figures for key, figures in recorded.items()}
    saved = {name: figures for name, figures in roles.items() if name and not figures.get("failure")}
    if not saved:
        return []
    steps = []
    if role is not None:
        taken = role if role in saved else next(iter(saved))
        format_ = format_to_suggest()
        export = command("export", run_dir, "--solution", taken, "--format", format_)
        steps.append(("a file to deploy", export))
        if format_ != "onnx":
            steps.append(("to write ONNX files", how_to_install("onnx")))
    steps.append(("is it faster?", command("bench", run_dir)))
    try:
        refused = facts.refused_in(recorded)
        thin = [one for one in thin_ones(candidates) if str(one.id) not in refused]
    except RunError:
        thin = []
    steps += _candidate_steps(run_dir, recorded, thin, {figures["id"] for figures in saved.values()})
    return [f"next ({what}): {line}" for what, line in steps]


def _candidate_steps(
    run_dir: Path, recorded: Mapping[str, Any], thin: list[Candidate], saved: set[int]
) -> list[tuple[str, str]]:
    """A limit that candidates meet, and the middle one of the best candidates without a solution."""
    steps = []
    whole = recorded[facts.ORIGINAL_FIGURES.key]["flops"]
    least = min((one.flops / whole for one in thin), default=1.0)
    lowest = max(_USUAL_PERCENT, 10 * math.ceil(10 * least))
    asked = {target["asked"] for target in facts.targets_in(recorded).values()}
    limits = [f"flops={share}%" for share in range(lowest, 100, 10)]
    if limit := next((one for one in limits if one not in asked), None):
        steps.append(("another limit", command("pick", run_dir, "--target", limit)))
    others = [one for one in thin if one.id not in saved]
    best = [one for one in front_of(thin) if one.id not in saved] or others
    if best:
        one = best[len(best) // 2]
        steps.append(("another candidate", command("finetune", run_dir, "--candidate", one.id)))
    return steps
