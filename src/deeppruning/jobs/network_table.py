"""Networks side by side, a row each: as text for a terminal, as HTML for a notebook."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deeppruning.amounts import aligned, amount, percent
from deeppruning.roles import ORIGINAL, ROLES, in_order
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.database import readable_errors

TEST_ERROR, SEARCH_ERROR = "test error", "error in the search"


@dataclass(frozen=True)
class NetworkRow:
    """One network of the table."""

    network: str
    candidate: int | None
    test_error: float | None
    flops: int
    flops_pruned: float
    params: int
    latency_seconds: float | None = None
    failure: str = ""  # why there is no such network
    loaded_seconds: float | None = None  # as `dp.load` returns it; `latency_seconds` are those as exported


@dataclass(frozen=True)
class NetworkTable:
    """The rows; a column that lacks a number is left out.

    >>> print(NetworkTable([NetworkRow("original", None, 0.0664, 125_000_000, 0.0, 850_000)]).text())
    network   test error     FLOPs  FLOPs saved  parameters
    original      6.64 %  125.00 M            -     850,000
    """

    rows: Sequence[NetworkRow]
    error: str = TEST_ERROR  # which one is shown
    share: bool = True  # whether it is a share of 1, shown in percent

    def text(self) -> str:
        """For a terminal."""
        return aligned(list(zip(*self._columns_with_values(), strict=True)))

    def markdown(self) -> str:
        """For a page of Markdown."""
        heads, *lines = zip(*self._columns_with_values(), strict=True)
        rule = ["---", *("---:" for _ in heads[1:])]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))

    def html(self) -> str:
        """For a notebook."""
        heads, *lines = zip(*self._columns_with_values(), strict=True)
        head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
        body = [
            (first, "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)) for first, *cells in lines
        ]
        rows = "".join(f"<tr><th>{html.escape(first)}</th>{cells}</tr>" for first, cells in body)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _columns_with_values(self) -> list[list[str]]:
        rows = self.rows
        columns: list[list[str]] = [
            ["network", *(row.network for row in rows)],
            [self.error, *("failed" if row.failure else self._error_cell(row) for row in rows)],
            ["FLOPs", *(amount(row.flops, like=rows[0].flops) for row in rows)],
            [
                "FLOPs saved",
                *("-" if row.candidate is None else percent(row.flops_pruned, 1) for row in rows),
            ],
            ["parameters", *(f"{row.params:,}" for row in rows)],
            ["latency", *self._latency_cells([row.latency_seconds for row in rows])],
            ["as loaded", *self._latency_cells([row.loaded_seconds for row in rows])],
        ]
        return [column for column in columns if all(column[1:])]

    def _error_cell(self, row: NetworkRow) -> str:
        error = row.test_error
        return percent(error) if self.share or error is None else f"{error:.4g}"

    def _latency_cells(self, seconds: Sequence[float | None]) -> list[str]:
        """Milliseconds, and the part of the original's that they are."""
        whole, cells = seconds[0], []
        for row, latency in zip(self.rows, seconds, strict=True):
            part = f" ({latency / whole:.2f}x)" if latency and whole and row.candidate is not None else ""
            cell = "" if latency is None else f"{1000 * latency:.2f} ms{part}"
            cells.append("-" if row.failure and any(seconds) else cell)
        return cells


def read_rows(run: RunFolder, roles: Sequence[str] | None = None) -> list[NetworkRow]:
    """The original and these solutions of a run, by default the picks and its targets, from its history."""
    recorded = run.history.facts()
    if roles is None:
        roles = in_order((*ROLES, *facts.solutions_in(recorded)))
    latency = recorded.get(facts.LATENCY.key, {})
    loaded = recorded.get(facts.LATENCY_LOADED.key, {})
    with readable_errors(run.history.path):  # facts that are missing
        original = {"id": None, "test_error": None, "flops_pruned": 0.0}
        networks: dict[str, Any] = {ORIGINAL: {**original, **recorded[facts.ORIGINAL_FIGURES.key]}}
        networks |= {role: recorded[facts.solution_fact(role).key] for role in roles}
        return [
            NetworkRow(
                role,
                figures["id"],
                figures["test_error"],
                figures["flops"],
                figures["flops_pruned"],
                figures["params"],
                latency.get(role),
                figures.get("failure", ""),
                loaded.get(role),
            )
            for role, figures in networks.items()
        ]
