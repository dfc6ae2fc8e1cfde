"""What guides the search: orders of the filters by every criterion, and of the units that may go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deeppruning.errors import Diverged, InputError
from deeppruning.evolution.space import Space
from deeppruning.graph import ChannelGraph
from deeppruning.importance import CRITERIA, Evidence
from deeppruning.pruning.candidate import Context
from deeppruning.pruning.drift import drift
from deeppruning.pruning.task import Classification
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.calls import as_call, batch_size, part_of

FIRST = ("span", "l1")  # orders that measured best after a refit; mixtures of depth and width use these
NO_ORDER = ("random",)
DIGITS = 6  # of a score: what is written down is what is used
SCANNED = 1500  # inputs that all scans of units share
FEWEST, MOST = 24, 96  # inputs of one scan


@dataclass(frozen=True, eq=False)
class Guide:
    """Scores of all genes by each order, and the groups that may go, the dispensable first."""

    scores: dict[str, NDArray[np.float64]]
    units: tuple[int, ...]

    def to_table(self) -> dict[str, Any]:
        """Plain values; those that are read back are the same."""
        return {
            "scores": {name: values.tolist() for name, values in self.scores.items()},
            "units": list(self.units),
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Guide:
        """Read back what `to_table` wrote."""
        scores = {name: np.array(values, dtype=np.float64) for name, values in table["scores"].items()}
        return cls(scores, tuple(int(unit) for unit in table["units"]))

    def space(self, graph: ChannelGraph, *, objective: str, multiple: int, least: int = 1) -> Space:
        """The widths and orders of a network as the strategy varies them.

        An objective that has to be measured is steered by the FLOPs.
        """
        return Space(
            graph.num_genes,
            [group.genes for group in graph.groups if group.prunable],
            scores=self.scores,
            price=graph.params if objective == "params" else graph.flops,
            repair=graph.repair,
            units=self.units,
            multiple=multiple,
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
    return Guide(scores, order_units(graph, inputs, scores["l1"]))


def order_units(graph: ChannelGraph, inputs: Any, scores: NDArray[np.float64]) -> tuple[int, ...]:
    """The prunable groups that may lose all their filters, those first that are missed least.

    Each is left out by itself, the rest refitted on a few inputs, and the outputs held against the
    original's. Without inputs, the scores of its filters tell.
    """
    groups = [group for group in graph.groups if group.prunable]
    units = [number for number, group in enumerate(groups) if group.removable]
    if inputs is None or not units:
        missed = [float(scores[list(groups[unit].genes)].sum()) for unit in units]
    else:
        call = as_call(inputs)
        wanted = min(max(SCANNED // len(units), FEWEST), MOST)
        few = part_of(call, slice(None, None, max(1, batch_size(call) // wanted)))
        reference = Reference.of(graph, few[0] or few[1])
        missed = [_missed(graph, reference, groups[unit].genes) for unit in units]
    return tuple(units[place] for place in np.argsort(missed, kind="stable"))


def _missed(graph: ChannelGraph, reference: Reference, genes: tuple[int, ...]) -> float:
    genome = graph.full_genome()
    genome[list(genes)] = False
    thin = graph.prune(genome).eval()
    refit_in_place(reference, graph, genome, thin)
    with torch.no_grad():
        found = thin(*reference.args, **reference.kwargs)
        wanted = reference.model(*reference.args, **reference.kwargs)
    try:
        return drift(wanted, found).score
    except Diverged:  # nothing works without it
        return math.inf


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])
