"""The picks and whatever else was fine-tuned, and the lines to copy that use them."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.reporting.section import SECTIONS, Data, Section, Source
from deeppruning.roles import ROLES
from deeppruning.runs import facts


def _collect(source: Source, data: Data) -> Data:
    found = _solutions(source.facts, data["picks"], data)
    return {"solutions": found, "commands": _commands(source.run.path, source.run.config, found)}


def _solutions(
    kept: Mapping[str, Any], picks: Sequence[Mapping[str, Any]], data: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The picks, from heavy to light, fine-tuned or as the search has them now; then all others saved."""
    by_id = {row["id"]: row for row in data["candidates"]}
    latest = picks[-1] if picks else {}
    found = []
    for role in ROLES:
        saved = kept.get(facts.solution_fact(role).key)
        if saved is not None:
            found.append({"role": role, "final": not saved.get("failure"), **saved})
        elif latest.get(role) in by_id:
            found.append({"role": role, "final": False, **_provisional(by_id[latest[role]], data)})
    for key, saved in kept.items():
        other = facts.solution_role(key)
        if other is not None and other not in ROLES:
            found.append({"role": other, "final": not saved.get("failure"), **saved})
    return found


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
    """Lines to copy: they name the run as it was named when the page was made."""
    run = shlex.quote(str(path))
    spec = str(config.get("model", {}).get("spec", ":"))
    own = ", model" if ":" in spec else ""  # a class of the user's own must be handed to `load`
    finals = [entry["role"] for entry in solutions if entry["final"]]
    return {
        "finetune": f"deeppruning finetune {run} --candidate ",
        "resume": f"deeppruning resume {run}",
        "bench": f"deeppruning bench {run}",
        "load": {role: f"model = dp.load({str(path / f'{role}.safetensors')!r}{own})" for role in finals},
        "export": {
            role: f"deeppruning export {run} --solution {shlex.quote(role)} --format onnx" for role in finals
        },
    }


SECTIONS.add(Section("solutions", _collect), place=20)
