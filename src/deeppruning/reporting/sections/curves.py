"""The fine-tuning of the picks, epoch by epoch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deeppruning.reporting.plots import finetuning
from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.roles import candidate_number, in_order


def _curves(
    epochs: Sequence[Mapping[str, Any]], solutions: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    by_solution: dict[str, list[dict[str, Any]]] = {}
    for row in epochs:
        values = {key: _finite(value) for key, value in row.items() if key != "solution"}
        by_solution.setdefault(row["solution"], []).append(values)
    curves: list[dict[str, Any]] = []
    for name, rows in by_solution.items():
        id_ = candidate_number(name)
        roles = [entry["role"] for entry in solutions if entry.get("id") == id_ and id_ is not None]
        picked = in_order(roles)
        # A name with a slash is a second training by other options, saved as the candidate's own.
        roles = [role for role in roles if role not in picked] if "/" in name else picked or roles
        curves.append({"id": id_, "name": name, "roles": roles, "epochs": rows})
    order = in_order(role for curve in curves for role in curve["roles"])
    return sorted(
        curves, key=lambda curve: min(map(order.index, in_order(curve["roles"])), default=len(order))
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


SECTIONS.add(
    Section(
        "curves",
        lambda source, data: {"curves": _curves(source.snapshot["epochs"], data["solutions"])},
        {"finetuning": finetuning},
    ),
    place=40,
)
