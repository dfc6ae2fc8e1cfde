"""What guides the search: orders of the filters by every criterion, and a scan of each group by itself.

The scan measures how far the outputs drift when one group alone is cut and the network is refitted. Its
cuts do not depend on each other, so that workers can share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deeppruning.backends.base import Session
from deeppruning.errors import DAMAGE, Diverged, InputError, RunError
from deeppruning.evolution.seeds import LEVELS
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of
from deeppruning.graph.groups import Group
from deeppruning.objectives import Counted, Objective
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.reference import FEWEST as NEEDED
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import LayersScanned, Observer
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.task import Classification
from deeppruning.searching.unlabelled import drift
from deeppruning.system.device import device_or_cpu, torch_threads

FIRST = ("span", "l1")  # the best orders after a refit, as measured; mixtures of depth and width use these
NO_ORDER = ("random",)
DIGITS = 6  # of a score, so that the recorded score is the one that was used
SCANNED = 3000  # inputs that the scans of all groups share
FEWEST, MOST = 48, 256  # inputs of one scan; every second to refit on, the others to judge by
FAILURE_SHOWN = 1500  # characters of a worker's traceback that an error message repeats

Scores = dict[str, NDArray[np.float64]]  # of all genes, by order
Look = Callable[[Sequence[Genome]], Sequence[float]]  # measures the losses of cuts


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
        return cls(_read_scores(table), tuple(int(unit) for unit in table["units"]), losses)

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
        scores = None if table is None else _read_scores(table)
    except DAMAGE as error:
        raise RunError(
            f"{history.path} holds no whole guide of the search ({error}); start a new run"
        ) from error
    with torch_threads(threads):
        if scores is None:
            scores = find_orders(context)
            history.set_fact(facts.GUIDE, {**Guide(scores, ()).to_table(), "losses": None})
        guide = scanned_guide(context, scores, look)
    history.set_fact(facts.GUIDE, guide.to_table())
    return guide


def _read_scores(table: Mapping[str, Any]) -> Scores:
    return {name: np.array(values, dtype=np.float64) for name, values in table["scores"].items()}


def find_orders(context: Context) -> Scores:
    """Scores of all genes by every criterion that the task has data for, the best criteria first."""
    graph, task = context.graph, context.task
    evidence = Evidence(
        graph,
        graph.prune(graph.full_genome()),
        task.parts[0] if isinstance(task, Classification) else None,
        seed=context.seed,
        inputs=task.refit_inputs(),
    )
    scores: Scores = {}
    for name in [*FIRST, *(name for name in CRITERIA if name not in (*FIRST, *NO_ORDER))]:
        try:
            values = np.asarray(CRITERIA[name].scores(evidence), dtype=np.float64)
        except InputError:  # it needs something that this task does not have
            continue
        scores[name] = _rounded(values)
    return scores


def scanned_guide(context: Context, scores: Scores, look: Look) -> Guide:
    """The guide with these orders, and with units and losses from a scan if there are inputs for one."""
    graph, losses = context.graph, []
    if context.task.refit_inputs() is not None:
        Scanner.in_(context)  # so that unsuitable inputs are refused here, not in a worker
        rows = scan(graph, next(iter(scores.values())), look)
        losses = [_rounded(np.array(row)).tolist() for row in rows]
    return Guide(scores, order_units(graph, losses, scores["l1"]), losses)


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


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([float(f"{value:.{DIGITS}g}") for value in values])


def scan(graph: ChannelGraph, scores: NDArray[np.float64], look: Look) -> list[list[float]]:
    """For each prunable group alone, the loss at `LEVELS` of its filters, and at last without the group.

    Measured are widths that the group may have; between them the loss is interpolated. It is infinite for a
    group that cannot be removed.
    """
    groups = [group for group in graph.groups if group.prunable]
    counts = [_counts(group) for group in groups]
    cuts = [
        _cut(graph, group, count, scores) for group, row in zip(groups, counts, strict=True) for count in row
    ]
    measured = iter(look(cuts))
    rows = []
    for group, row in zip(groups, counts, strict=True):
        losses = {count: next(measured) for count in row}
        rows.append([*_at_levels(losses, len(group.genes)), losses.get(0, math.inf)])
    return rows


def _counts(group: Group) -> list[int]:
    """The widths of a group to measure: the permitted ones next to `LEVELS`, and 0 if it may be removed."""
    whole, step = len(group.genes), group.multiple
    near = (min(max(round(level * whole / step), 1) * step, whole - step) for level in LEVELS)
    thinner = sorted({count for count in near if count > 0}, reverse=True)
    return [*thinner, 0] if group.removable else thinner


def _cut(graph: ChannelGraph, group: Group, count: int, scores: NDArray[np.float64]) -> Genome:
    """The genome in which one group keeps only its `count` filters of highest score."""
    genes = list(group.genes)
    ranked = np.array(genes)[np.argsort(-scores[genes], kind="stable")]
    genome = graph.full_genome()
    genome[ranked[count:]] = False
    return graph.repair(genome)


def _at_levels(losses: Mapping[int, float], whole: int) -> list[float]:
    """The losses at `LEVELS`, interpolated between the measured widths; the whole group loses nothing.

    >>> _at_levels({8: 0.5, 0: 1.5}, 16)
    [0.25, 0.5, 1.0]
    """
    measured = {**losses, whole: 0.0}
    widths = sorted(measured)
    levels = np.interp([level * whole for level in LEVELS], widths, [measured[width] for width in widths])
    # Interpolation next to an infinite loss gives nan.
    return [math.inf if math.isnan(loss) else float(loss) for loss in levels]


@dataclass(frozen=True, eq=False)
class Scanner:
    """Measures the losses of cuts: each is refitted on some inputs and judged on others."""

    graph: ChannelGraph
    reference: Reference
    judged: Call
    outputs: Any  # of the original, for the judged inputs

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, device: str | None = None) -> Scanner:
        """The more groups there are, the fewer inputs are used for each."""
        call = as_call(inputs)
        groups = sum(group.prunable for group in graph.groups)
        count = min(max(SCANNED // groups, FEWEST), MOST)
        few = part_of(call, slice(None, None, max(1, batch_size(call) // count)))
        refitted = judged = few
        if batch_size(few) >= 2 * NEEDED:  # otherwise there are too few to judge on others
            refitted, judged = part_of(few, slice(0, None, 2)), part_of(few, slice(1, None, 2))
        reference = Reference.of(graph, refitted[0] or refitted[1], device=device)
        judged = onto(judged, reference.device)
        return cls(graph, reference, judged, _outputs(reference.model, judged))

    @classmethod
    def in_(cls, context: Context) -> Scanner:
        """The scanner of a search, made once per process."""
        device = str(device_or_cpu(context.device))
        return context.once("scanner", lambda: cls.of(context.graph, context.task.refit_inputs(), device))

    def loss(self, genome: Genome) -> float:
        """The drift of a refitted cut from the original; infinite if its outputs are not finite."""
        thin = self.graph.prune(genome).eval()
        refit_in_place(self.reference, self.graph, genome, thin)
        try:
            return drift(self.outputs, _outputs(thin, self.judged)).judged
        except Diverged:
            return math.inf


def _outputs(network: nn.Module, call: Call) -> Any:
    args, kwargs = call
    with torch.no_grad():
        return network(*args, **kwargs)


def scan_loss(context: Context, genome: Genome) -> float:
    """The loss of one cut of a scan."""
    return Scanner.in_(context).loss(genome)


@dataclass(frozen=True, eq=False)
class ScanCut:
    """A cut of a scan as an item for workers; plain genomes are candidates."""

    genome: Genome


def losses_by_workers(
    session: Session[Any, Any], history: History, observer: Observer, genomes: Sequence[Genome]
) -> list[float]:
    """The losses of all cuts of a scan; recorded one by one, so that a stopped scan can be resumed."""
    recorded = history.get_fact(facts.SCAN)
    losses: dict[str, float | None] = {}
    if recorded is not None and recorded["of"] == len(genomes):  # not of another version, with other cuts
        losses = recorded["losses"]
    missing = [
        (str(place), ScanCut(genome)) for place, genome in enumerate(genomes) if str(place) not in losses
    ]
    for outcome in session.map(missing) if missing else ():
        if outcome.value is None:
            reason = (outcome.failure or "its worker gave no reason")[-FAILURE_SHOWN:]
            raise RunError(f"a scan of the network's layers failed:\n{reason}")
        losses[outcome.key] = outcome.value if math.isfinite(outcome.value) else None
        figures: facts.ScanFigures = {"of": len(genomes), "losses": losses}
        history.set_fact(facts.SCAN, figures)
        observer(LayersScanned(len(losses), len(genomes)))
    values = [losses[str(place)] for place in range(len(genomes))]
    return [math.inf if loss is None else loss for loss in values]
