"""The events of a search in words, one line each, and as JSON values with fixed keys, for machines."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deeppruning.amounts import amount, duration, percent
from deeppruning.comparison.results import ComparisonEvent, MethodDone, method_line
from deeppruning.display.state import SearchState, node_of, stage_title
from deeppruning.runs import Status
from deeppruning.runs.facts import plan_line, refusal_line, target_line
from deeppruning.searching.events import (
    CandidateDone,
    CandidateRefused,
    EpochDone,
    Event,
    FinetuneDiverged,
    FinetunePlanned,
    GenerationDone,
    LayersScanned,
    Remark,
    SolutionSaved,
    Stage,
    Started,
    TargetSettled,
)

_SOLUTION = ("role", "id", "path", "train_error", "test_error", "flops", "flops_pruned", "params", "refitted")


def line_of(event: Event, state: SearchState) -> str:
    """An event as a line of text, or an empty text. `state` includes the event already."""
    match event:
        case Stage():
            return stage_line(event)
        case Started():
            return _started_line(event)
        case LayersScanned():
            return scanned_line(event)
        case CandidateDone():
            return candidate_line(event, state)
        case GenerationDone():
            return _generation_line(event, state)
        case EpochDone():
            return _epoch_line(event)
        case FinetuneDiverged():
            return _diverged_line(event)
        case FinetunePlanned():
            return _plan_line(event)
        case CandidateRefused():
            return refusal_line(event.id, event.reason)
        case TargetSettled():
            return target_line(event.role, event.asked, event.note)
        case Remark():
            return event.text
    untuned = " (as before fine-tuning, which did not help)" if event.solution.refitted else ""
    return f"saved {event.solution.role} in {event.solution.path}{untuned}"


def comparison_line(event: ComparisonEvent) -> str:
    """An event of a comparison as a line; empty for a single epoch."""
    match event:
        case MethodDone():
            return method_line(event)
        case FinetuneDiverged():
            return _diverged_line(event)
        case Remark():
            return event.text
    return ""


def _started_line(event: Started) -> str:
    """The start of a search: its size and the original's figures."""
    error = event.original_error
    sample = f", error of the original on the sample {percent(error)}" if error else ""
    of = "" if event.evaluations is None else f" of {event.evaluations}"
    begun = f"; {event.known}{of} candidates are evaluated already" if event.known else ""
    begun += f"; {event.widths}" if event.widths else ""
    candidates = "as many candidates as its time allows"
    if event.evaluations is not None:
        candidates = f"{event.evaluations} candidates"
    return (
        f"searching: {event.genes} filter groups, {candidates}, "
        f"{amount(event.original_flops)} FLOPs, {event.original_params:,} parameters{sample}{begun}"
    )


def stage_line(event: Stage) -> str:
    """A step of the preparations, with a line at its begin and for each quarter of it."""
    if not event.done:
        return stage_title(event)
    return f"{stage_title(event)}: {event.done} of {event.of}" if _passes_quarter_of_stage(event) else ""


def scanned_line(event: LayersScanned) -> str:
    """The progress of the scan, a line for each quarter of it."""
    return f"scanning layers: {event.done} of {event.of} cuts" if _passes_quarter_of_stage(event) else ""


def _passes_quarter_of_stage(event: Stage | LayersScanned) -> bool:
    return event.of > 0 and 4 * event.done // event.of > 4 * (event.done - 1) // event.of


def candidate_line(event: CandidateDone, state: SearchState) -> str:
    """A candidate that was just evaluated."""
    if not event.fresh:
        return ""
    evaluation = event.candidate.evaluated
    saved = percent(state.saved(event.candidate), 1)
    number = f"{state.done:>{len(str(state.total))}}/{state.total}" if state.total else f"{state.done:>4}"
    where = f"  on {node_of(evaluation.worker)}" if state.by_node() else ""
    tried = f"  ({event.attempts} attempts: workers died or hung)" if event.attempts > 1 else ""
    ok = event.candidate.status is Status.OK
    trouble = "" if ok else f"  {event.candidate.status}: {event.candidate.reason}"
    return (
        f"candidate {number}  {state.judged_by} {percent(evaluation.error):>8}  "
        f"FLOPs -{saved}  {evaluation.seconds:.1f} s{where}{tried}{trouble}"
    )


def _generation_line(event: GenerationDone, state: SearchState) -> str:
    """A generation that is over: its picks and the time left."""
    if not state.seconds:
        return ""
    left = state.seconds_left()
    time_left = f"{duration(left)} left" if left else ""
    of = "" if event.generations is None else f"/{event.generations}"
    parts = [f"generation {event.generation}{of}", state.picks_line(), state.archive]
    return " | ".join(filter(None, [*parts, time_left, state.by_node()]))


def _epoch_line(event: EpochDone) -> str:
    """An epoch of fine-tuning with its errors."""
    report = event.report
    train = "" if report.train_error is None else f"  train error {percent(report.train_error)}"
    test = "" if report.test_error is None else f"  test error {percent(report.test_error)}"
    before = "" if report.epoch else " (before training)"
    return (
        f"fine-tuning {'+'.join(event.roles)}  epoch {report.epoch}/{event.epochs}{before}{train}{test}  "
        f"{report.seconds:.1f} s"
    )


def _plan_line(event: FinetunePlanned) -> str:
    return f"fine-tuning {'+'.join(event.roles)}: {plan_line(asdict(event))}"


def _diverged_line(event: FinetuneDiverged) -> str:
    """A fine-tuning that diverged, and whether it starts again."""
    factor = event.lr_factor
    then = "it has failed" if factor is None else f"it starts again with {factor:g} of the learning rate"
    return f"fine-tuning {'+'.join(event.roles)} diverged ({event.reason}); {then}"


_NAMES: dict[type, str] = {
    Stage: "stage",
    Started: "started",
    Remark: "remark",
    LayersScanned: "scanned",
    FinetuneDiverged: "diverged",
    FinetunePlanned: "plan",
    TargetSettled: "target",
    CandidateRefused: "refused",
}


def as_record(event: Event) -> tuple[str, Mapping[str, Any]]:
    """An event as its name and its JSON values."""
    match event:
        case CandidateDone():
            return "candidate", _candidate_record(event)
        case GenerationDone():
            return "generation", _generation_record(event)
        case EpochDone():
            own = {"id": event.id, "roles": list(event.roles), "epochs": event.epochs}
            return "epoch", {**own, **asdict(event.report)}
        case SolutionSaved():
            values = {name: getattr(event.solution, name) for name in _SOLUTION}
            return "solution", {**values, "path": str(event.solution.path)}
    return _NAMES[type(event)], asdict(event)


def _candidate_record(event: CandidateDone) -> dict[str, Any]:
    """A candidate as JSON values."""
    candidate = event.candidate
    return {
        "id": candidate.id,
        "generation": candidate.generation,
        "fresh": event.fresh,
        "attempts": event.attempts,
        "operator": candidate.operator,
        "parents": list(candidate.parents),
        **{key: value for key, value in vars(candidate.evaluated).items() if key != "genome"},
        "kept": int(candidate.genome.sum()),
    }


def _generation_record(event: GenerationDone) -> dict[str, Any]:
    """A generation as JSON values."""
    picks = [
        {
            "role": role,
            "id": pick.id,
            "error": pick.train_error,
            "cost": pick.cost,
            "flops": pick.flops,
            "flops_pruned": 1.0 - pick.flops / event.original_flops,
        }
        for role, pick in event.picks.items()
    ]
    return {"generation": event.generation, "generations": event.generations, "picks": picks}
