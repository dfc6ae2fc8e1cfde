"""Every candidate of the search, what of each layer it keeps, and which were picked when."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deeppruning.genome import unpack_genome
from deeppruning.objectives import OBJECTIVES, Function
from deeppruning.reporting.plots import population
from deeppruning.reporting.section import SECTIONS, Data, Section, Source
from deeppruning.reporting.sections.layers import layer_genes
from deeppruning.runs import facts


def _collect(source: Source, data: Data) -> Data:
    genes = layer_genes(source.facts)
    rows = source.snapshot["candidates"]
    branches = source.facts.get(facts.BRANCHES.key, {})
    candidates = [_candidate(row, genes, branches) for row in rows if row["status"] != "waiting"]
    objective = source.run.config.get("search", {}).get("objective", "flops")
    return {
        "error_is_share": all(0.0 <= row["error"] <= 1.0 for row in candidates if row["error"] is not None),
        "candidates": candidates,
        "picks": _picks_by_generation(source.snapshot["picks"]),
        "axes": _axes(objective, candidates),
    }


def _candidate(
    row: Mapping[str, Any], layers: Mapping[str, Any], branches: Mapping[str, Any]
) -> dict[str, Any]:
    genome = unpack_genome(bytes.fromhex(row["genome"]), row["num_genes"])
    # A gene of -1 stands for a filter that always stays: it finds the True put at the end.
    bits = np.append(genome, True)
    names = ("id", "generation", "error", "cost", "flops", "params", "seconds", "status", "reason", "kept")
    return {name: row[name] for name in (*names, "num_genes")} | {
        "widths": [
            0 if any(not bits[unit].any() for unit in branches.get(name, ())) else int(bits[genes].sum())
            for name, genes in layers.items()
        ]
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
