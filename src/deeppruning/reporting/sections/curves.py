"""The fine-tuning of the picks, epoch by epoch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deeppruning.reporting.plots import finetuning
from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.roles import SOLUTIONS, candidate_number


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
        picked = [role for role in roles if role in SOLUTIONS]
        # A name with a slash is a second training by other options, saved as the candidate's own.
        roles = [role for role in roles if role not in SOLUTIONS] if "/" in name else picked or roles
        curves.append({"id": id_, "name": name, "roles": roles, "epochs": rows})
    order = {role: place for place, role in enumerate(SOLUTIONS)}
    return sorted(curves, key=lambda curve: min((order.get(role, 9) for role in curve["roles"]), default=9))


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
