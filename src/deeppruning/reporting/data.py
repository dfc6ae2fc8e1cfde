"""Everything the page and the plots show, as one plain dict of JSON values read from a run folder."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeppruning.genome import unpack_genome
from deeppruning.reporting.comparison import FOLDER, read_rivals
from deeppruning.reporting.words import standing, verdict
from deeppruning.roles import ROLES, candidate_number
from deeppruning.runs import facts
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import HISTORY, RunFolder
from deeppruning.version import __version__

NOTHING: dict[str, Any] = {"candidates": [], "picks": [], "epochs": [], "facts": {}}


def collect(run_dir: Path | str) -> dict[str, Any]:
    """What there is to show of a run at this instant; the run may be going on, and is not disturbed."""
    with RunFolder.open(run_dir, read_only=True) as run:
        started = (run.path / HISTORY).is_file()
        snapshot = run.history.snapshot() if started else NOTHING
    with readable_errors(run.path / HISTORY):  # rows that contradict each other
        return _collect(run, str(run_dir), snapshot)


def _collect(run: RunFolder, shown: str, snapshot: Mapping[str, Any]) -> dict[str, Any]:
    kept, config = snapshot["facts"], run.config
    search = config.get("search", {})
    layers = {name: np.array(genes, dtype=np.int64) for name, genes in _layer_genes(kept).items()}
    candidates = [_candidate(row, layers) for row in snapshot["candidates"] if row["status"] != "waiting"]
    picks = _picks_by_generation(snapshot["picks"])
    data: dict[str, Any] = {
        "run": shown,
        "title": _title(config),
        "version": run.version,
        "page_version": __version__,
        "selection": search.get("selection", "plus"),
        "evaluations": _evaluations(search),
        "generations": search.get("generations"),
        "error_is_share": all(0.0 <= row["error"] <= 1.0 for row in candidates if row["error"] is not None),
        "original": kept.get(facts.ORIGINAL_FIGURES.key),
        "layers": [_layer(name, genes) for name, genes in layers.items()],
        "candidates": candidates,
        "picks": picks,
        "axes": _axes(search.get("objective", "flops"), candidates),
        "config": config,
        "versions": kept.get(facts.VERSIONS.key, {}),
    }
    data["solutions"] = _solutions(kept, picks, data)
    data["curves"] = _curves(snapshot["epochs"], data["solutions"])
    data["bench"] = _bench(kept)
    data["rivals"] = read_rivals(run.path / FOLDER)
    data["commands"] = _commands(run.path, config, data["solutions"])
    data |= standing(run.path, data, waiting=len(snapshot["candidates"]) - len(candidates), facts=kept)
    data["verdict"] = verdict(data)
    return data


def _title(config: Mapping[str, Any]) -> str:
    model, data = (config.get(table, {}) for table in ("model", "data"))
    parts = [model.get("spec") or "A network", data.get("data")]
    return " on ".join(str(part) for part in parts if part)


def _evaluations(search: Mapping[str, Any]) -> int | None:
    if "offspring" not in search or "generations" not in search:
        return None
    return int(3 + search["offspring"] * search["generations"])


def _layer_genes(kept: Mapping[str, Any]) -> dict[str, list[int]]:
    """The genes of each layer's filters; the first runs kept only widths, which tell nothing here."""
    return {name: genes for name, genes in kept.get(facts.LAYERS.key, {}).items() if isinstance(genes, list)}


def _layer(name: str, genes: "np.ndarray[Any, np.dtype[np.int64]]") -> dict[str, Any]:
    return {"name": name, "width": len(genes), "fixed": bool((genes < 0).all())}


def _candidate(row: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Any]:
    genome = unpack_genome(bytes.fromhex(row["genome"]), row["num_genes"])
    # A gene of -1 stands for a filter that always stays: it finds the True put at the end.
    bits = np.append(genome, True)
    names = ("id", "generation", "error", "cost", "flops", "params", "seconds", "status", "reason", "kept")
    return {name: row[name] for name in (*names, "num_genes")} | {
        "widths": [int(bits[genes].sum()) for genes in layers.values()]
    }


def _picks_by_generation(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["generation"], {"generation": row["generation"]})[row["role"]] = row[
            "candidate_id"
        ]
    return [found[generation] for generation in sorted(found)]


def _axes(objective: str, candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What the error can be plotted against, the objective of the search first."""
    axes = [{"key": "flops", "label": "FLOPs"}, {"key": "params", "label": "Parameters"}]
    if objective == "params":
        return axes[::-1]
    if objective == "latency":
        return [{"key": "cost", "label": "Latency in the search, seconds"}, *axes]
    # A function of the user's own leaves no name, but its costs are not FLOPs.
    if any(row["cost"] != row["flops"] for row in candidates if row["cost"] is not None):
        return [{"key": "cost", "label": "Cost (own objective)"}, *axes]
    return axes


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
            found.append({"role": other, "final": True, **saved})
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


def _curves(
    epochs: Sequence[Mapping[str, Any]], solutions: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    by_solution: dict[str, list[dict[str, Any]]] = {}
    for row in epochs:
        values = {key: _finite(value) for key, value in row.items() if key != "solution"}
        by_solution.setdefault(row["solution"], []).append(values)
    curves = []
    for name, rows in by_solution.items():
        id_ = candidate_number(name)
        roles = [entry["role"] for entry in solutions if entry.get("id") == id_ and id_ is not None]
        picked = [role for role in roles if role in ROLES]
        # A name with a slash is a second training by other options, saved as the candidate's own.
        roles = [role for role in roles if role not in ROLES] if "/" in name else picked or roles
        curves.append({"id": id_, "name": name, "roles": roles, "epochs": rows})
    order = {role: place for place, role in enumerate(ROLES)}
    return sorted(curves, key=lambda curve: min((order.get(role, 3) for role in curve["roles"]), default=3))


def _bench(kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Latencies: {"networks": {role: {"latency_ms": {how: {"median": 1.2, "spread": 0.1}}}}}.

    Those of `deeppruning bench`, or else the seconds for one input that a run measures at its end.
    """
    bench, brief = kept.get(facts.BENCH.key), kept.get(facts.LATENCY.key)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        return bench
    if not isinstance(brief, dict):
        return None
    how = "one input, one thread"
    return {
        "networks": {
            role: {"latency_ms": {how: {"median": 1000 * seconds}}} for role, seconds in brief.items()
        }
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
