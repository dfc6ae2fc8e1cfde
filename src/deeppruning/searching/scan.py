"""The scan before a guided search: how far the outputs drift when one group of filters alone is cut.

What a group loses at every width follows from one factorisation (see `elimination`), up to a factor that
depends on the rest of the network. A few *looks* give the factor: the original runs with the group's channels
replaced by what the remaining channels can express of them. Only a group that is removed as a whole is really
cut and the network refitted: later layers make up for most of a missing branch. Looks do not depend on each
other, so that workers can share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.backends.base import Session
from deeppruning.errors import Diverged, RunError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import Call, as_call, batch_size, onto, part_of, run_in_portions
from deeppruning.graph.groups import Group
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.probing import FEWEST as NEEDED
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import LayersScanned, Observer
from deeppruning.searching.importance import Evidence
from deeppruning.searching.importance.elimination import Elimination, StandIn, eliminate_groups
from deeppruning.searching.importance.evidence import split_inputs
from deeppruning.searching.unlabelled import drift
from deeppruning.system.device import device_or_cpu, precision_of

LEVELS = tuple(step / 16 for step in range(15, 0, -1))  # shares of a group's filters with a known loss
LOOKS = (0.75, 0.5)  # shares of a group's filters at which is looked
SCANNED = 1600  # inputs that the looks at all groups share
FEWEST, MOST = 32, 256  # inputs of one look
REFITTED = 1  # times as many are refitted on where a group is removed
PART = 32  # inputs whose outputs are compared at once
FAILURE_SHOWN = 1500  # characters of a worker's traceback that an error message repeats
SMALLEST = 1e-9  # losses below it are taken as this one

SCANNER = "scanner"  # in the memory of a worker

Look = Callable[[Sequence["ScanCut"]], Sequence[float]]  # measures the losses of cuts


@dataclass(frozen=True, eq=False)
class ScanCut:
    """A cut of one group as an item for workers; plain genomes are candidates.

    Without stand-ins the network is cut and refitted: if the whole group goes, or if no layer reads it with
    weights of its own.
    """

    genome: Genome
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)  # by the layer that reads them


def scan(evidence: Evidence, scores: NDArray[np.float64], look: Look) -> list[list[float]]:
    """For each prunable group alone, the loss at `LEVELS` of its filters, and at last without the group.

    It is infinite for a group that cannot be removed.
    """
    groups = [group for group in evidence.graph.groups if group.prunable]
    counts = [_widths_to_scan(group) for group in groups]
    # Groups of one branch leave the same network behind: it is looked at once.
    cuts: dict[Any, ScanCut] = {}
    for number, (group, row) in enumerate(zip(groups, counts, strict=True)):
        for count in row:
            cuts.setdefault(_cut_key(number, group, count), _cut_of_group(evidence, group, count, scores))
    measured = dict(zip(cuts, look(list(cuts.values())), strict=True))
    eliminations = eliminate_groups(evidence.graph, evidence.readers, scores)
    rows = []
    for number, (group, row) in enumerate(zip(groups, counts, strict=True)):
        losses = {count: measured[_cut_key(number, group, count)] for count in row}
        levels, gone = at_levels(losses, len(group.genes), eliminations[number]), losses.get(0, math.inf)
        # A few filters of a group are worth no less than none.
        rows.append([*(min(level, gone) for level in levels), gone])
    return rows


def _cut_key(number: int, group: Group, count: int) -> tuple[Any, ...]:
    return (number, count) if count else tuple(sorted(group.branch))


def _widths_to_scan(group: Group) -> list[int]:
    """The widths of a group to look at: the permitted ones next to `LOOKS`, and 0 if it may be removed."""
    whole, step = len(group.genes), group.multiple
    near = (min(max(round(share * whole / step), 1) * step, whole - step) for share in LOOKS)
    thinner = sorted({count for count in near if count > 0}, reverse=True)
    return [*thinner, 0] if group.removable else thinner


def _cut_of_group(evidence: Evidence, group: Group, count: int, scores: NDArray[np.float64]) -> ScanCut:
    """The cut in which one group keeps only its `count` filters of highest score."""
    genes = list(group.genes)
    ranked = np.array(genes)[np.argsort(-scores[genes], kind="stable")]
    genome = evidence.graph.full_genome()
    genome[ranked[count:]] = False
    genome = evidence.graph.repair(genome)
    if not count:
        return ScanCut(genome)
    stand_ins = {name: reader.stand_in(genes, genome) for name, reader in evidence.readers.items()}
    return ScanCut(genome, {name: each for name, each in stand_ins.items() if each is not None})


def at_levels(losses: Mapping[int, float], whole: int, elimination: Elimination | None) -> list[float]:
    """The losses at `LEVELS`: those of the elimination, times a factor that meets the measured ones.

    Without an elimination they are interpolated between the measured ones.
    """
    measured = {count: loss for count, loss in sorted(losses.items()) if math.isfinite(loss)}
    factors = {
        count: max(loss, SMALLEST) / elimination.loss(count)
        for count, loss in measured.items()
        if elimination is not None and elimination.loss(count) > 0
    }
    widths = [level * whole for level in LEVELS]
    if elimination is not None and factors:
        logarithms = np.interp(widths, list(factors), np.log(list(factors.values())))
        return [
            elimination.loss(width) * math.exp(factor)
            for width, factor in zip(widths, logarithms, strict=True)
        ]
    if not measured:
        return [math.inf] * len(LEVELS)
    known = {**measured, whole: 0.0}
    return [float(loss) for loss in np.interp(widths, list(known), list(known.values()))]


@dataclass(frozen=True, eq=False)
class Scanner:
    """Measures the losses of cuts on inputs by which stand-ins and refitted networks are not known."""

    graph: ChannelGraph
    reference: Reference  # the original, on the inputs for a refit
    parts: list[Call]
    outputs: list[Any]  # of the original

    @classmethod
    def of(cls, graph: ChannelGraph, inputs: Any, device: str = "cpu") -> Scanner:
        """The more groups there are, the fewer inputs are used for each."""
        read, others = split_inputs(as_call(inputs))
        if batch_size(read) < NEEDED:  # too few to keep some apart
            read = others = as_call(inputs)
        count = min(max(SCANNED // sum(group.prunable for group in graph.groups), FEWEST), MOST)
        args, kwargs = _spread_inputs(read, REFITTED * count)
        reference = Reference.of(graph, kwargs or args, device=device)
        few = _spread_inputs(others, count)
        starts = range(0, batch_size(few), PART)
        own = precision_of(reference.model)  # images come in single precision
        parts = [onto(part_of(few, slice(start, start + PART)), device, own) for start in starts]
        outputs = [run_in_portions(reference.model, part, device) for part in parts]
        return cls(graph, reference, parts, outputs)

    @classmethod
    def in_(cls, context: Context) -> Scanner:
        """The scanner of a search, made once per process."""
        device = str(device_or_cpu(context.device))
        return context.once(SCANNER, lambda: cls.of(context.graph, context.task.refit_inputs(), device))

    def loss(self, cut: ScanCut) -> float:
        """The drift from the original; infinite if outputs are not finite."""
        network, device, hooks = self.reference.model, self.reference.device, []
        if not cut.stand_ins:
            network = self.graph.prune(cut.genome).eval()
            refit_in_place(self.reference, self.graph, cut.genome, network)
        for name, stand_in in cut.stand_ins.items():
            hooks.append(network.get_submodule(name).register_forward_pre_hook(stand_in))
        try:
            drifts = [
                batch_size(part) * drift(expected, run_in_portions(network, part, device)).judged
                for part, expected in zip(self.parts, self.outputs, strict=True)
            ]
        except Diverged:
            return math.inf
        finally:
            for hook in hooks:
                hook.remove()
        return sum(drifts) / sum(map(batch_size, self.parts))


def _spread_inputs(call: Call, most: int) -> Call:
    """About `most` of the inputs, evenly spread."""
    return part_of(call, slice(None, None, max(1, batch_size(call) // most)))


def scan_loss(context: Context, cut: ScanCut) -> float:
    """The loss of one cut of a scan."""
    return Scanner.in_(context).loss(cut)


def losses_by_workers(
    session: Session[Any, Any], history: History, observer: Observer, cuts: Sequence[ScanCut]
) -> list[float]:
    """The losses of all cuts of a scan; recorded one by one, so that a stopped scan can be resumed."""
    recorded = history.get_fact(facts.SCAN)
    losses: dict[str, float | None] = {}
    if recorded is not None and recorded["of"] == len(cuts):  # not of another version, with other cuts
        losses = recorded["losses"]
    missing = [(str(place), cut) for place, cut in enumerate(cuts) if str(place) not in losses]
    for outcome in session.map(missing) if missing else ():
        if outcome.value is None:
            reason = (outcome.failure or "its worker gave no reason")[-FAILURE_SHOWN:]
            raise RunError(f"a scan of the network's layers failed:\n{reason}")
        losses[outcome.key] = outcome.value if math.isfinite(outcome.value) else None
        figures: facts.ScanFigures = {"of": len(cuts), "losses": losses}
        history.set_fact(facts.SCAN, figures)
        observer(LayersScanned(len(losses), len(cuts)))
    values = [losses[str(place)] for place in range(len(cuts))]
    return [math.inf if loss is None else loss for loss in values]
