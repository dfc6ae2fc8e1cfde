"""The networks of a run as a record has them: each training of a candidate, by its last epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

from deeppruning.reporting.evidence import latency_ms
from deeppruning.roles import ROLES, TARGET, candidate_name, candidate_number
from deeppruning.runs import Candidate, EpochRow, facts


def trained_networks(
    kept: Mapping[str, Any], candidates: Sequence[Candidate], epochs: Sequence[EpochRow]
) -> list[dict[str, Any]]:
    """Every training of a pick, then of other candidates; one of no epochs is a pick as it was cut."""
    picks = _picks(kept)
    trained: dict[str, list[EpochRow]] = {candidate_name(id_): [] for id_ in picks}
    for epoch in epochs:
        if candidate_number(epoch.solution) is not None:
            trained.setdefault(epoch.solution, []).append(epoch)
    by_id = {row.id: row for row in candidates}
    found = []
    for name, rows in trained.items():
        candidate = by_id[candidate_number(name) or 0]
        roles = picks.get(candidate.id, [])
        # A name with a slash is a further training, of which the figures of the pick say nothing.
        figures = kept[facts.solution_fact(roles[0]).key] if roles and "/" not in name else {}
        network = {
            "roles": roles,
            "candidate": candidate.id,
            "training": name,
            "epochs": sum(row.epoch > 0 for row in rows),  # epoch 0 is before any training
            "test_error": rows[-1].test_error if rows else figures.get("test_error"),
            **_costs(candidate, kept, roles),
            "seconds": sum(row.seconds for row in rows),
        }
        found.append(network | {key: figures[key] for key in ("failure", "lr_factor") if key in figures})
    untrained = {one["candidate"]: one["test_error"] for one in found if not one["epochs"]}
    return [one | {"untrained_error": untrained.get(one["candidate"])} for one in found]


def _picks(kept: Mapping[str, Any]) -> dict[int, list[str]]:
    """The roles of every candidate that holds one."""
    found: dict[int, list[str]] = {}
    for role in (*ROLES, TARGET):
        figures = kept.get(facts.solution_fact(role).key)
        if figures is not None:
            found.setdefault(figures["id"], []).append(role)
    return found


def _costs(candidate: Candidate, kept: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    """What a network costs, by itself and in per cent of the original, and its error in the search."""
    whole = kept[facts.ORIGINAL_FIGURES.key]
    latencies = (latency_ms(kept, name) for name in (*roles, candidate_name(candidate.id)))
    return {
        "search_error": candidate.train_error,
        "flops": candidate.flops,
        "params": candidate.params,
        "flops_left": 100 * candidate.flops / whole["flops"],
        "params_left": 100 * candidate.params / whole["params"],
        "latency_ms": next((one for one in latencies if one is not None), None),
    }
