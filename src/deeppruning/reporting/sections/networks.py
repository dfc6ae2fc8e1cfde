"""The networks to choose from: the picks and others, their fine-tuning, their latencies, how to use them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deeppruning.objectives import Latency
from deeppruning.reporting.evidence import measured, with_evidence
from deeppruning.reporting.plots import finetuning
from deeppruning.reporting.section import SECTIONS, Data, Section, Source
from deeppruning.roles import ORIGINAL, candidate_number, in_order
from deeppruning.runs import facts
from deeppruning.system.commands import command_for_page, format_to_suggest

ORIGINAL_WEIGHTS = f"finetune/{ORIGINAL}.safetensors"


def _collect_networks(source: Source, data: Data) -> Data:
    """The networks to choose from, with the commands to use them."""
    solutions = [
        {**entry, **_file_size(source.run.solution(entry["role"]))}
        for entry in _solutions_of_run(source.facts, data)
    ]
    by_id = {entry["id"]: entry for entry in reversed(solutions) if entry.get("id") is not None}
    original = data["original"] and {**data["original"], **_file_size(source.run.path / ORIGINAL_WEIGHTS)}
    return {
        "original": original,
        "solutions": solutions,
        "candidates": [_with_figures(row, by_id.get(row["id"], {}), data) for row in data["candidates"]],
        "commands": _commands_to_copy(source.run.path, source.run.config, solutions),
    }


def _file_size(path: Path) -> dict[str, int]:
    """The size of a network's file, once there is one."""
    try:
        return {"file_bytes": path.stat().st_size}
    except OSError:
        return {}


def _solutions_of_run(recorded: Data, data: Data) -> list[dict[str, Any]]:
    """The picks, from heavy to light, fine-tuned or as the search has them now; then targets, then others."""
    by_id = {row["id"]: row for row in data["candidates"]}
    latest = data["picks"][-1] if data["picks"] else {}
    solutions = []
    roles = [role for key in recorded if (role := facts.solution_role(key)) is not None]
    for role in dict.fromkeys((*in_order((*roles, *latest)), *roles)):
        saved = with_evidence(role, recorded.get(facts.solution_fact(role).key), recorded)
        if saved is not None:
            unhelped = facts.unhelped_line(saved)
            solutions.append({"role": role, "final": not saved.get("failure"), **saved, "unhelped": unhelped})
        elif latest.get(role) in by_id:
            solutions.append(
                {"role": role, "final": False, **_provisional_solution(by_id[latest[role]], data)}
            )
    return solutions


def _provisional_solution(row: Data, data: Data) -> dict[str, Any]:
    """A pick of a search that is going on."""
    original = data["original"]
    return {
        "id": row["id"],
        "train_error": row["error"],
        "test_error": None,
        "flops": row["flops"],
        "flops_pruned": 1.0 - row["flops"] / original["flops"] if original else None,
        "params": row["params"],
    }


def _with_figures(row: Data, saved: Data, data: Data) -> dict[str, Any]:
    """A candidate with its test error and its latency, once it is fine-tuned.

    If the search measured latencies, every candidate has its own, and the two kinds are not mixed.
    """
    searched = data["axes"][0]["label"] == Latency().title
    latency = row["cost"] and 1000 * row["cost"] if searched else saved.get("latency_ms")
    return {**row, "test_error": saved.get("test_error"), "latency_ms": latency}


def _commands_to_copy(path: Path, config: Data, solutions: Sequence[Data]) -> dict[str, Any]:
    """Lines to copy; they name the run as the user named it.

    An absolute path becomes relative to the current folder, or the run's own name: the page may be passed
    on, and must not show where things lie on this machine.
    """
    if path.is_absolute():
        here = Path.cwd()
        path = path.relative_to(here) if here in path.parents else Path(path.name)
    spec = str(config.get("model", {}).get("spec", ":"))
    own = ", model" if ":" in spec else ""  # `load` needs the network if it is the user's
    if spec.endswith(".onnx"):
        own = f", dp.from_onnx({Path(spec).name!r})"
    thin = "thin" in config  # inputs without labels: nothing can be trained
    finals = [entry["role"] for entry in solutions if entry["final"]]
    return {
        "finetune": "" if thin else f"{command_for_page('finetune', path, '--candidate')} ",
        "resume": "" if thin else command_for_page("resume", path),
        "bench": command_for_page("bench", path),
        "load": {role: f"model = dp.load({str(path / f'{role}.safetensors')!r}{own})" for role in finals},
        "export": {
            role: command_for_page("export", path, "--solution", role, "--format", format_to_suggest())
            for role in finals
        },
    }


def _finetuning_curves(source: Source, data: Data) -> Data:
    """Fine-tuning, epoch by epoch; the picks first."""
    by_solution: dict[str, list[dict[str, Any]]] = {}
    for row in source.snapshot["epochs"]:
        values = {key: _finite_or_none(value) for key, value in asdict(row).items() if key != "solution"}
        by_solution.setdefault(row.solution, []).append(values)
    curves: list[dict[str, Any]] = []
    for name, rows in by_solution.items():
        id_ = candidate_number(name)
        roles = [entry["role"] for entry in data["solutions"] if entry.get("id") == id_ and id_ is not None]
        picked = in_order(roles)
        # A name with a slash is a second training by other options, saved as the candidate's own.
        roles = [role for role in roles if role not in picked] if "/" in name else picked or roles
        plan = source.facts.get(facts.plan_fact(name).key)
        planned = facts.plan_line(plan) if plan else None
        curves.append({"id": id_, "name": name, "roles": roles, "epochs": rows, "plan": planned})
    order = in_order(role for curve in curves for role in curve["roles"])

    def place(curve: Mapping[str, Any]) -> int:
        return min(map(order.index, in_order(curve["roles"])), default=len(order))

    return {"curves": sorted(curves, key=place)}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bench_figures(source: Source, data: Data) -> Data:
    """What `bench` and int8 export have recorded."""
    int8 = source.facts.get(facts.INT8.key) or {}
    names = [name for name in dict.fromkeys((ORIGINAL, *in_order(int8), *int8)) if name in int8]
    return {"bench": measured(source.facts), "int8": {name: int8[name] for name in names} or None}


SECTIONS.add(Section("solutions", _collect_networks), place=20)
SECTIONS.add(Section("curves", _finetuning_curves, {"finetuning": finetuning}), place=40)
SECTIONS.add(Section("bench", _bench_figures), place=50)
