"""The picks and whatever else was fine-tuned, and the lines to copy that use them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.objectives import Latency
from deeppruning.reporting.measured import with_evidence
from deeppruning.reporting.section import SECTIONS, Data, Section, Source
from deeppruning.roles import ORIGINAL, in_order
from deeppruning.runs import facts
from deeppruning.system.commands import command_for_page
from deeppruning.system.extras import format_to_suggest

ORIGINAL_WEIGHTS = f"finetune/{ORIGINAL}.safetensors"


def _collect(source: Source, data: Data) -> Data:
    found = [
        {**one, **_size(source.run.solution(one["role"]))}
        for one in _solutions(source.facts, data["picks"], data)
    ]
    by_id = {entry["id"]: entry for entry in reversed(found) if entry.get("id") is not None}
    original = data["original"] and {**data["original"], **_size(source.run.path / ORIGINAL_WEIGHTS)}
    return {
        "original": original,
        "solutions": found,
        "candidates": [_with_figures(row, by_id.get(row["id"], {}), data) for row in data["candidates"]],
        "commands": _commands(source.run.path, source.run.config, found),
    }


def _size(path: Path) -> dict[str, int]:
    """How large a network's file is, once there is one."""
    try:
        return {"file_bytes": path.stat().st_size}
    except OSError:
        return {}


def _solutions(
    kept: Mapping[str, Any], picks: Sequence[Mapping[str, Any]], data: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The picks, from heavy to light, fine-tuned or as the search has them now; then targets, then others."""
    by_id = {row["id"]: row for row in data["candidates"]}
    latest = picks[-1] if picks else {}
    found = []
    roles = [role for key in kept if (role := facts.solution_role(key)) is not None]
    for role in dict.fromkeys((*in_order((*roles, *latest)), *roles)):
        saved = with_evidence(role, kept.get(facts.solution_fact(role).key), kept)
        if saved is not None:
            unhelped = facts.told_unhelped(saved)
            found.append({"role": role, "final": not saved.get("failure"), **saved, "unhelped": unhelped})
        elif latest.get(role) in by_id:
            found.append({"role": role, "final": False, **_provisional(by_id[latest[role]], data)})
    return found


def _with_figures(
    row: Mapping[str, Any], saved: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """A candidate with what is known of few: its test error and its latency, once it is fine-tuned.

    Where the search measured latencies, all have theirs, and the two kinds are not mixed.
    """
    searched = data["axes"][0]["label"] == Latency().title
    latency = row["cost"] and 1000 * row["cost"] if searched else saved.get("latency_ms")
    return {**row, "test_error": saved.get("test_error"), "latency_ms": latency}


def _provisional(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    original = data["original"]
    pruned = 1.0 - row["flops"] / original["flops"] if original else None
    return {
        "id": row["id"],
        "train_error": row["error"],
        "test_error": None,
        "flops": row["flops"],
        "flops_pruned": pruned,
        "params": row["params"],
    }


def _commands(
    path: Path, config: Mapping[str, Any], solutions: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Lines to copy: they name the run as it was named when the page was made.

    One that was named from the root of the disk goes by its way from here, or by its own name: a page is
    passed on, and where things lie on this machine is no one's business.
    """
    if path.is_absolute():
        here = Path.cwd()
        path = path.relative_to(here) if here in path.parents else Path(path.name)
    spec = str(config.get("model", {}).get("spec", ":"))
    own = ", model" if ":" in spec else ""  # a class of the user's own must be handed to `load`
    finals = [entry["role"] for entry in solutions if entry["final"]]
    return {
        "finetune": f"{command_for_page('finetune', path, '--candidate')} ",
        "resume": command_for_page("resume", path),
        "bench": command_for_page("bench", path),
        "load": {role: f"model = dp.load({str(path / f'{role}.safetensors')!r}{own})" for role in finals},
        "export": {
            role: command_for_page("export", path, "--solution", role, "--format", format_to_suggest())
            for role in finals
        },
    }


SECTIONS.add(Section("solutions", _collect), place=20)
