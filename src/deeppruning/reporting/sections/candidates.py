"""Every candidate of the search with its layers: the picks, the archive, and where candidates come from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from deeppruning.amounts import percent
from deeppruning.objectives import OBJECTIVES, Function
from deeppruning.reporting.plots import layers, population
from deeppruning.reporting.section import SECTIONS, Data, Section, Source, table
from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts
from deeppruning.runs.archive_replay import Replay, cost_range, replay, sources
from deeppruning.runs.records import Candidate

Genes = np.ndarray[Any, np.dtype[np.int64]]


def _collect_candidates(source: Source, data: Data) -> Data:
    """All candidates of the run, with the picks of each generation."""
    genes = _layer_genes(source.facts)
    rows = [row for row in source.snapshot["candidates"] if row.evaluation is not None]
    branches = source.facts.get(facts.BRANCHES.key, {})
    candidates = [_candidate_row(row, genes, branches) for row in rows]
    search = source.run.config.get("search", {})
    costs = cost_range(search)
    # The original is where the search starts, never one of its picks.
    original = {row.id for row in rows if row.operator == ORIGINAL}
    picks = {
        generation: {role: id_ for role, id_ in roles.items() if id_ not in original}
        for generation, roles in source.snapshot["picks"].items()
    }
    return {
        "error_is_share": all(0.0 <= row["error"] <= 1.0 for row in candidates if row["error"] is not None),
        "candidates": candidates,
        "picks": [{"generation": generation, **roles} for generation, roles in picks.items() if roles],
        "archive": None if costs is None else _archive_by_generation(rows, replay(costs, rows)),
        "axes": _axes_to_plot(search.get("objective", "flops"), candidates),
    }


def _layer_genes(recorded: Data) -> dict[str, Genes]:
    """The genes of each layer's filters."""
    layers = recorded.get(facts.LAYERS.key, {})
    return {name: np.array(genes, np.int64) for name, genes in layers.items() if isinstance(genes, list)}


def _candidate_row(
    row: Candidate, layers: Mapping[str, Genes], branches: Mapping[str, Any]
) -> dict[str, Any]:
    """A candidate with the widths of its layers."""
    # A gene of -1 stands for a filter that is never cut: it reads the True at the end.
    bits = np.append(row.genome, True)
    widths = [
        0 if any(not bits[unit].any() for unit in branches.get(name, ())) else int(bits[genes].sum())
        for name, genes in layers.items()
    ]
    evaluation = row.evaluated
    return {
        "id": row.id,
        "generation": row.generation,
        "error": evaluation.error,
        "cost": evaluation.cost,
        "flops": evaluation.flops,
        "params": evaluation.params,
        "seconds": evaluation.seconds,
        "status": evaluation.status.value,
        "reason": evaluation.reason,
        "kept": int(row.genome.sum()),
        "operator": row.operator,
        "parents": list(row.parents),
        "score": evaluation.score,
        "num_genes": len(row.genome),
        "widths": widths,
    }


def _archive_by_generation(rows: Sequence[Candidate], history: Replay) -> dict[str, Any]:
    """The archive after each generation, all that ever entered it, and the success of each origin."""
    return {
        "bins": history.archive.bins,
        "fronts": [{"generation": generation, "ids": ids} for generation, ids in history.fronts.items()],
        "entered": sorted(history.entered),
        "sources": [asdict(source) for source in sources(rows, history)],
    }


def _axes_to_plot(objective: str, candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What the error can be plotted against, the objective of the search first."""
    column, label = OBJECTIVES[objective].column, OBJECTIVES[objective].title
    # A function given by the user has no name, but its costs differ from those of the named objective.
    if any(row["cost"] != row[column] for row in candidates if row["cost"] is not None):
        column, label = Function.column, Function.label
    others = {other.column: other.title for other in OBJECTIVES.values() if other.column != "cost"}
    return [{"key": key, "label": title} for key, title in ({column: label} | others).items()]


def _origins_table(source: Source, data: Data) -> Data:
    """Which seeds and operators candidates of the archive come from, as a table."""
    if data["archive"] is None:
        return {}
    rows = [
        (row["name"], row["tried"], row["entered"], percent(row["entered"] / row["tried"], 0), row["held"])
        for row in data["archive"]["sources"]
    ]
    lead = (
        "The archive keeps the best candidate of each cost range. Seeds are what the search starts from; "
        "every other candidate is made from one or two that were in the archive at the time."
    )
    columns = ("origin", "tried", "entered the archive", "fraction", "in it now")
    return table("Where candidates come from", columns, rows, lead=lead, folded=True)


def _layers_of_original(source: Source, data: Data) -> Data:
    """The layers of the original and their widths."""
    return {
        "layers": [
            {"name": name, "width": len(genes), "fixed": bool((genes < 0).all())}
            for name, genes in _layer_genes(source.facts).items()
        ]
    }


SECTIONS.add(Section("candidates", _collect_candidates, {"population": population}), place=10)
SECTIONS.add(Section("origins", _origins_table), place=15)
SECTIONS.add(Section("layers", _layers_of_original, {"layers": layers}), place=30)
