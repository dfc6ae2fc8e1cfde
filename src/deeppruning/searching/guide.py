"""What guides the search: orders of the filters by every criterion, and of the units that may go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import InputError
from deeppruning.evolution.space import Space
from deeppruning.graph import ChannelGraph
from deeppruning.objectives import Counted, Objective
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.scan import Look, Scanner, look_here, scan
from deeppruning.searching.task import Classification

FIRST = ("span", "l1")  # orders that measured best after a refit; mixtures of depth and width use these
NO_ORDER = ("random",)
DIGITS = 6  # of a score: what is written down is what is used

Scores = dict[str, NDArray[np.float64]]  # of all genes, by each order


@dataclass(frozen=True, eq=False)
class Guide:
    """Scores of all genes by each order, and the groups that may go, the dispensable first."""

    scores: Scores
    units: tuple[int, ...]
    losses: list[list[float]] = field(default_factory=list)  # of each group, see `scan`; none without inputs

    def to_table(self) -> dict[str, Any]:
        """Plain values; those that are read back are the same."""
        return {
            "scores": {name: values.tolist() for name, values in self.scores.items()},
            "units": list(self.units),
            "losses": [[value if math.isfinite(value) else None for value in row] for row in self.losses],
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Guide:
        """Read back what `to_table` wrote."""
        scores = read_scores(table)
        losses = [[math.inf if value is None else float(value) for value in row] for row in table["losses"]]
        return cls(scores, tuple(int(unit) for unit in table["units"]), losses)

    def space(self, graph: ChannelGraph, *, objective: Objective, least: int = 1) -> Space:
        """The widths and orders of a network as the strategy varies them.

        An objective that needs the thin network itself is steered by the FLOPs.
        """
        price = partial(objective.count, graph) if isinstance(objective, Counted) else graph.flops
        groups = [group for group in graph.groups if group.prunable]
        return Space(
            graph.num_genes,
            [group.genes for group in groups],
            scores=self.scores,
            price=price,
            repair=graph.repair,
            units=self.units,
            multiple=[group.multiple for group in groups],
            least=least,
        )


def read_scores(table: Mapping[str, Any]) -> Scores:
    """The orders of a guide that was written down, its scan being done or not."""
    return {name: np.array(values, dtype=np.float64) for name, values in table["scores"].items()}


def find_guide(context: Context, look: Look | None = None) -> Guide:
    """Ask every criterion that can tell from what the task has; look at each group by itself.

    Without a way to look at cuts they are looked at here.
    """
    return scanned_guide(context, find_orders(context), look or look_here(context))


def find_orders(context: Context) -> Scores:
    """Scores of all genes by every criterion that can tell from what the task has, the best ones first."""
    graph = context.graph
    task, inputs = context.task, context.task.refit_inputs()
    evidence = Evidence(
        graph,
        graph.prune(graph.full_genome()),
        task.parts[0] if isinstance(task, Classification) else None,
        seed=context.seed,
        inputs=inputs,
    )
    names = [*FIRST, *(name for name in CRITERIA if name not in (*FIRST, *NO_ORDER))]
    scores: Scores = {}
    for name in names:
        try:
            found = np.asarray(CRITERIA[name].scores(evidence), dtype=np.float64)
        except InputError:  # it looks at something that this task does not have
            continue
        scores[name] = _rounded(found)
    return scores


def scanned_guide(context: Context, scores: Scores, look: Look) -> Guide:
    """The guide of these orders, its units and losses by a scan where there are inputs for one."""
    graph, losses = context.graph, []
    if context.task.refit_inputs() is not None:
        Scanner.in_(context)  # inputs that will not do are found out here, not in a worker
        rows = scan(graph, next(iter(scores.values())), look)
        losses = [_rounded(np.array(row)).tolist() for row in rows]
    return Guide(scores, order_units(graph, losses, scores["l1"]), losses)


def order_units(
    graph: ChannelGraph, losses: Sequence[Sequence[float]], scores: NDArray[np.float64]
) -> tuple[int, ...]:
    """The prunable groups that may lose all their filters, those first that are missed least.

    Without a scan, the scores of their filters tell.
    """
    groups = [group for group in graph.groups if group.prunable]
    units = [number for number, group in enumerate(groups) if group.removable]
    if losses:
        missed = [losses[unit][-1] for unit in units]
    else:
        missed = [float(scores[list(groups[unit].genes)].sum()) for unit in units]
    return tuple(units[place] for place in np.argsort(missed, kind="stable"))


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])
