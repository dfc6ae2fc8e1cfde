"""What guides the search: orders of the filters by every criterion, and of the units that may go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeppruning.errors import Diverged, InputError
from deeppruning.evolution.balance import LEVELS
from deeppruning.evolution.space import Space
from deeppruning.graph import ChannelGraph
from deeppruning.graph.repair import multiple_for
from deeppruning.importance import CRITERIA, Evidence
from deeppruning.objectives import Counted, Objective
from deeppruning.pruning.candidate import Context
from deeppruning.pruning.drift import drift
from deeppruning.pruning.task import Classification
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.refitting.reference import FEWEST as NEEDED

FIRST = ("span", "l1")  # orders that measured best after a refit; mixtures of depth and width use these
NO_ORDER = ("random",)
DIGITS = 6  # of a score: what is written down is what is used
SCANNED = 3000  # inputs that the scans of all groups share
FEWEST, MOST = 48, 256  # inputs of one scan; every second to refit on, the others to judge by


@dataclass(frozen=True, eq=False)
class Guide:
    """Scores of all genes by each order, and the groups that may go, the dispensable first."""

    scores: dict[str, NDArray[np.float64]]
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
        scores = {name: np.array(values, dtype=np.float64) for name, values in table["scores"].items()}
        losses = [[math.inf if value is None else float(value) for value in row] for row in table["losses"]]
        return cls(scores, tuple(int(unit) for unit in table["units"]), losses)

    def space(
        self, graph: ChannelGraph, *, objective: Objective, round_to: int | None, least: int = 1
    ) -> Space:
        """The widths and orders of a network as the strategy varies them.

        An objective that needs the thin network itself is steered by the FLOPs.
        """
        price = partial(objective.count, graph) if isinstance(objective, Counted) else graph.flops
        groups = [group.genes for group in graph.groups if group.prunable]
        return Space(
            graph.num_genes,
            groups,
            scores=self.scores,
            price=price,
            repair=graph.repair,
            units=self.units,
            multiple=[multiple_for(len(genes), round_to) for genes in groups],
            least=least,
        )


def find_guide(context: Context) -> Guide:
    """Ask every criterion that can tell from what the task has; look at each unit by itself."""
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
    scores = {}
    for name in names:
        try:
            found = np.asarray(CRITERIA[name].scores(evidence), dtype=np.float64)
        except InputError:  # it looks at something that this task does not have
            continue
        scores[name] = _rounded(found)
    losses = scan(graph, inputs, scores[names[0]]) if inputs is not None else []
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


def scan(graph: ChannelGraph, inputs: Any, scores: NDArray[np.float64]) -> list[list[float]]:
    """For each prunable group by itself, what is lost at `LEVELS` of its filters, and at last without it.

    The rest of the network is whole; all is refitted on a few inputs, and the outputs for others are held
    against the original's. A group that cannot go is lost without measure.
    """
    groups = [group for group in graph.groups if group.prunable]
    call = as_call(inputs)
    wanted = min(max(SCANNED // len(groups), FEWEST), MOST)
    few = part_of(call, slice(None, None, max(1, batch_size(call) // wanted)))
    refitted = judged = few
    if batch_size(few) >= 2 * NEEDED:  # else there are too few to keep some aside
        refitted, judged = part_of(few, slice(0, None, 2)), part_of(few, slice(1, None, 2))
    reference = Reference.of(graph, refitted[0] or refitted[1])
    judge = _Judge(reference.model, onto(judged, reference.device))
    found = []
    for group in groups:
        ranked = np.array(group.genes)[np.argsort(-scores[list(group.genes)], kind="stable")]
        kept = [max(1, round(level * len(ranked))) for level in LEVELS]
        row = [_loss(graph, reference, judge, ranked[count:]) for count in kept]
        row.append(_loss(graph, reference, judge, ranked) if group.removable else math.inf)
        found.append(_rounded(np.array(row)).tolist())
    return found


class _Judge:
    """How far a network's outputs are from the original's on some inputs."""

    def __init__(self, original: nn.Module, call: Call) -> None:
        self._args, self._kwargs = call
        with torch.no_grad():
            self._wanted = original(*self._args, **self._kwargs)

    def __call__(self, network: nn.Module) -> float:
        with torch.no_grad():
            found = network(*self._args, **self._kwargs)
        try:
            return drift(self._wanted, found).score
        except Diverged:  # nothing works without what is gone
            return math.inf


def _loss(graph: ChannelGraph, reference: Reference, judge: _Judge, gone: NDArray[np.int64]) -> float:
    genome = graph.full_genome()
    genome[gone] = False
    genome = graph.repair(genome)
    thin = graph.prune(genome).eval()
    refit_in_place(reference, graph, genome, thin)
    return judge(thin)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])
