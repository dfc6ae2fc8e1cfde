"""What guides the search: orders of the filters by every criterion, and what each group alone may lose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import DAMAGE, InputError, RunError
from deeppruning.evolution.space import Space
from deeppruning.graph import ChannelGraph
from deeppruning.objectives import Counted, Objective
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.scan import Look, scan
from deeppruning.searching.task import Classification
from deeppruning.system.device import device_or_cpu, torch_threads

FIRST = ("span", "l1")  # the best orders after a refit, as measured; mixtures of depth and width use these
NO_ORDER = ("random",)
DIGITS = 6  # of a score, so that the recorded score is the one that was used

Scores = dict[str, NDArray[np.float64]]  # of all genes, by order


@dataclass(frozen=True, eq=False)
class Guide:
    """Scores of all genes by each order, and the groups that may be removed, the most dispensable first."""

    scores: Scores
    units: tuple[int, ...]
    losses: list[list[float]] = field(default_factory=list)  # of each group, see `scan`; none without inputs

    def to_table(self) -> dict[str, Any]:
        """Plain values, from which `from_table` makes the same guide."""
        return {
            "scores": {name: values.tolist() for name, values in self.scores.items()},
            "units": list(self.units),
            "losses": [[value if math.isfinite(value) else None for value in row] for row in self.losses],
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Guide:
        """The guide that `to_table` wrote."""
        losses = [[math.inf if value is None else float(value) for value in row] for row in table["losses"]]
        return cls(_scores_in_table(table), tuple(int(unit) for unit in table["units"]), losses)

    def space(self, graph: ChannelGraph, *, objective: Objective, least: int = 1) -> Space:
        """The widths and orders of a network as the strategy varies them.

        For an objective that must be measured, the price is the FLOPs.
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


def load_or_make_guide(context: Context, history: History, look: Look, threads: int) -> Guide:
    """The guide in a history, or a new one, which is then recorded: first its orders, then its scan.

    Another processor rounds differently: a run that is resumed elsewhere must keep its orders.
    """
    table = history.get_fact(facts.GUIDE)
    try:
        if table is not None and table["losses"] is not None:
            return Guide.from_table(table)
        scores = None if table is None else _scores_in_table(table)
    except DAMAGE as error:
        raise RunError(
            f"{history.path} holds no whole guide of the search ({error}); start a new run"
        ) from error
    with torch_threads(threads):
        evidence = gather_evidence(context)
        if scores is None:
            scores = find_orders(evidence)
            history.set_fact(facts.GUIDE, {**Guide(scores, ()).to_table(), "losses": None})
        guide = scanned_guide(evidence, scores, look)
    history.set_fact(facts.GUIDE, guide.to_table())
    return guide


def _scores_in_table(table: Mapping[str, Any]) -> Scores:
    return {name: np.array(values, dtype=np.float64) for name, values in table["scores"].items()}


def gather_evidence(context: Context) -> Evidence:
    """What the criteria may look at: the network, and the inputs or images of the task, if it has some."""
    graph, task = context.graph, context.task
    return Evidence(
        graph,
        graph.prune(graph.full_genome()),
        task.parts[0] if isinstance(task, Classification) else None,
        device=str(device_or_cpu(context.device)),
        seed=context.seed,
        inputs=task.refit_inputs(),
    )


def find_orders(evidence: Evidence) -> Scores:
    """Scores of all genes by every criterion that there is data for, the best criteria first."""
    scores: Scores = {}
    for name in [*FIRST, *(name for name in CRITERIA if name not in (*FIRST, *NO_ORDER))]:
        try:
            values = np.asarray(CRITERIA[name].scores(evidence), dtype=np.float64)
        except InputError:  # it needs something that this task does not have
            continue
        scores[name] = _rounded_scores(values)
    return scores


def scanned_guide(evidence: Evidence, scores: Scores, look: Look) -> Guide:
    """The guide with these orders, and with units and losses from a scan if there are inputs for one."""
    losses = []
    if evidence.inputs is not None:
        rows = scan(evidence, next(iter(scores.values())), look)
        losses = [_rounded_scores(np.array(row)).tolist() for row in rows]
    return Guide(scores, order_units(evidence.graph, losses, scores["l1"]), losses)


def order_units(
    graph: ChannelGraph, losses: Sequence[Sequence[float]], scores: NDArray[np.float64]
) -> tuple[int, ...]:
    """The prunable groups that may lose all filters, the smallest loss or, without a scan, score first."""
    groups = [group for group in graph.groups if group.prunable]
    units = [number for number, group in enumerate(groups) if group.removable]
    if losses:
        worth = [losses[unit][-1] for unit in units]
    else:
        worth = [float(scores[list(groups[unit].genes)].sum()) for unit in units]
    return tuple(units[place] for place in np.argsort(worth, kind="stable"))


def _rounded_scores(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])
