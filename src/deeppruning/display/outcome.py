"""The end of a run on the command line: the networks side by side, and commands to try next."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deeppruning.display.progress import RunOutcome, SearchProgress
from deeppruning.display.state import origins_line
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.network_table import NetworkTable, read_rows
from deeppruning.jobs.result import Result
from deeppruning.jobs.solution import Solution
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_both_forms, measure_networks
from deeppruning.reporting import missing_plots_line, write_report
from deeppruning.reporting.recommendation import recommend
from deeppruning.roles import KNEE, ORIGINAL, in_order, target_number
from deeppruning.runs import Candidate, RunFolder, facts
from deeppruning.system.commands import command, format_to_suggest, how_to_install
from deeppruning.system.device import precision_of
from deeppruning.targets.choice import pareto_front, thin_candidates

FORMS = (
    "(latency: one image in PyTorch, one CPU thread, fastest of several runs; as exported, with batch norms "
    "folded; as loaded: as dp.load returns it)"
)
_SLOW_SECONDS = 0.5  # a forward pass beyond this is not measured: the table must come at once
_USUAL_PERCENT = 40  # of the FLOPs: the limit that is suggested, if the search has networks below it


def conclude(run_dir: Path, progress: SearchProgress) -> None:
    """Show a finished run: its table, its report and the commands to try next."""
    report = write_report_or_say(run_dir, progress)
    with RunFolder.open(run_dir, read_only=True) as run:
        rows, recorded = read_rows(run), run.history.facts()
        advice, origins = recommend(recorded), origins_line(run)
        suggested = None if advice and advice.none else (advice and advice.role) or KNEE
        next_steps = next_lines(run, suggested)
    lines = [
        NetworkTable(rows).text(),
        *([FORMS] if any(row.latency_seconds is not None for row in rows) else []),
        *(f"{row.network} failed: {row.failure}" for row in rows if row.failure),
        *untuned_notes(recorded),
        *choice_notes(recorded),
        *([advice.text] if advice else []),
    ]
    more = [
        f"candidates that entered the archive: {origins}" if origins else "",
        f"run folder: {run_dir}",
        f"report: {report}" if report else "",
        missing_plots_line(),
        *next_steps,
    ]
    progress.finish(RunOutcome(rows, report, lines, list(filter(None, more))))


def show_saved(run_dir: Path, solution: Solution, progress: SearchProgress) -> None:
    """Show a network that was fine-tuned by itself and saved in a run."""
    report = write_report_or_say(run_dir, progress)
    with RunFolder.open(run_dir, read_only=True) as run:
        rows, recorded = read_rows(run, [solution.role]), run.history.facts()
    lines = [NetworkTable(rows).text(), *untuned_notes(recorded, [solution.role])]
    lines += choice_notes(recorded) if target_number(solution.role) is not None else []
    lines += [f"saved in {solution.path}", *([f"report: {report}"] if report else [])]
    progress.finish(RunOutcome(rows, report, lines))


def choice_notes(recorded: Mapping[str, Any]) -> list[str]:
    """The outcome of the targets, and which candidates were refused, a line each."""
    refused = [facts.refusal_line(id_, why) for id_, why in facts.refused_in(recorded).items()]
    return [*facts.target_lines(recorded), *refused]


def untuned_notes(recorded: Mapping[str, Any], roles: Sequence[str] | None = None) -> list[str]:
    """Which networks are as they were before fine-tuning, a line for each candidate, and what to try."""
    notes: dict[Any, tuple[list[str], str]] = {}
    solutions = facts.solutions_in(recorded)
    for role in in_order(solutions) if roles is None else roles:
        figures = solutions[role]
        if note := facts.unhelped_line(figures):
            notes.setdefault(figures["id"], ([], note))[0].append(role)
    return [f"{', '.join(held)}: {note}" for held, note in notes.values()]


def keep_latencies(result: Result, original: nn.Module, example: torch.Tensor) -> None:
    """Measure the networks in turn, one input and one CPU thread, and record it in the run.

    A candidate with several roles is one network, and has one speed.
    """
    example = example.to(precision_of(original))
    models: dict[int | None, nn.Module] = {None: original.cpu()}
    models |= {solution.id: solution.model.cpu() for solution in result.solutions}
    if measure_networks([original], example, Conditions(), turns=1)[0] > _SLOW_SECONDS:
        return
    seconds = dict(zip(models, measure_both_forms(list(models.values()), example), strict=True))
    ids = {ORIGINAL: None, **{solution.role: solution.id for solution in result.solutions}}
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


def next_lines(run: RunFolder, role: str | None) -> list[str]:
    """Commands to try next, a line each, that work as they stand; `role` is the network to take, if any."""
    recorded, run_dir = run.history.facts(), run.path
    solutions = facts.solutions_in(recorded)
    saved = {name: figures for name, figures in solutions.items() if not figures.get("failure")}
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
        thin = [each for each in thin_candidates(run.history.candidates()) if str(each.id) not in refused]
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
    least = min((candidate.flops / whole for candidate in thin), default=1.0)
    lowest = max(_USUAL_PERCENT, 10 * math.ceil(10 * least))
    used = {target["asked"] for target in facts.targets_in(recorded).values()}
    limits = [f"flops={share}%" for share in range(lowest, 100, 10)]
    if limit := next((limit for limit in limits if limit not in used), None):
        steps.append(("another limit", command("pick", run_dir, "--target", limit)))
    best = [each for each in pareto_front(thin) if each.id not in saved]
    if best := best or [each for each in thin if each.id not in saved]:
        middle = best[len(best) // 2].id
        steps.append(("another candidate", command("finetune", run_dir, "--candidate", middle)))
    return steps
