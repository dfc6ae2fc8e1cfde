"""Every candidate of the search, what of each layer it keeps, and which were picked or archived when."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from deeppruning.genome import unpack_genome
from deeppruning.objectives import OBJECTIVES, Function
from deeppruning.reporting.plots import population
from deeppruning.reporting.section import SECTIONS, Data, Section, Source
from deeppruning.reporting.sections.layers import layer_genes
from deeppruning.roles import ORIGINAL
from deeppruning.runs import facts
from deeppruning.runs.archive_replay import Replay, Told, cost_range, replay, sources


def _collect(source: Source, data: Data) -> Data:
    genes = layer_genes(source.facts)
    rows = source.snapshot["candidates"]
    branches = source.facts.get(facts.BRANCHES.key, {})
    candidates = [_candidate(row, genes, branches) for row in rows if row["status"] != "waiting"]
    search = source.run.config.get("search", {})
    objective = search.get("objective", "flops")
    within = cost_range(search)
    told = [_told(row) for row in candidates]
    # What is given is not found: the original is never shown as a pick.
    given = {one.id for one in told if one.operator == ORIGINAL}
    picks = [row for row in source.snapshot["picks"] if row["candidate_id"] not in given]
    return {
        "error_is_share": all(0.0 <= row["error"] <= 1.0 for row in candidates if row["error"] is not None),
        "candidates": candidates,
        "picks": _picks_by_generation(picks),
        "archive": None if within is None else _archive(told, replay(within, told)),
        "axes": _axes(objective, candidates),
    }


def _candidate(
    row: Mapping[str, Any], layers: Mapping[str, Any], branches: Mapping[str, Any]
) -> dict[str, Any]:
    genome = unpack_genome(bytes.fromhex(row["genome"]), row["num_genes"])
    # A gene of -1 stands for a filter that always stays: it finds the True put at the end.
    bits = np.append(genome, True)
    names = ("id", "generation", "error", "cost", "flops", "params", "seconds", "status", "reason", "kept")
    origin = ("operator", "parents", "score")
    return {name: row[name] for name in (*names, *origin, "num_genes")} | {
        "widths": [
            0 if any(not bits[unit].any() for unit in branches.get(name, ())) else int(bits[genes].sum())
            for name, genes in layers.items()
        ]
    }


def _told(row: Mapping[str, Any]) -> Told:
    judged = row["error"] if row["score"] is None else row["score"]
    return Told(
        row["id"], row["generation"], row["cost"], judged, row["operator"] or "", tuple(row["parents"] or ())
    )


def _archive(told: Sequence[Told], found: Replay) -> dict[str, Any]:
    """Who holds the archive after each generation, who ever entered it, and what came of each origin."""
    return {
        "bins": found.archive.bins,
        "fronts": [{"generation": generation, "ids": ids} for generation, ids in found.fronts.items()],
        "entered": sorted(found.entered),
        "sources": [asdict(source) for source in sources(told, found)],
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
    chosen = OBJECTIVES[objective]
    label = chosen.title
    column = chosen.column
    # A function of the user's own leaves no name, but its costs are not those of the objective named.
    if any(row["cost"] != row[column] for row in candidates if row["cost"] is not None):
        column, label = Function.column, Function.label
    kept = {one.column: one.title for one in OBJECTIVES.values() if one.column != "cost"}
    return [{"key": key, "label": title} for key, title in ({column: label} | kept).items()]


SECTIONS.add(Section("candidates", _collect, {"population": population}), place=10)
