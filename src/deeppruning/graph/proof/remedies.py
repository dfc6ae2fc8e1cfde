"""Remedies: what to do where a thin copy of a network differs from the masked one.

The mildest remedy that helps is taken: run a parameter-free submodule at its old width, cut another
dimension of a view, tie the pieces of a split, and last freeze the channels at the operation that has a
size written into it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from deeppruning.graph.atoms import Atoms, AtomTable, Genes, Site, positions_of
from deeppruning.graph.payloads import Channels
from deeppruning.graph.proof.probe import Fault
from deeppruning.graph.trace.tracer import Record, Trace

SPLITS = ("split", "split_with_sizes", "slice", "narrow", "chunk", "roll")
JOINS = ("constant_pad_nd", "cat")


@dataclass
class Decisions:
    """What probes have shown about a network so far; a new trace starts with them."""

    detached: set[str] = field(default_factory=set)
    choices: dict[Site, int] = field(default_factory=dict)
    tied: set[Site] = field(default_factory=set)
    frozen: dict[Site, str] = field(default_factory=dict)
    frozen_inputs: dict[Site, str] = field(default_factory=dict)
    frozen_constants: dict[Site, str] = field(default_factory=dict)
    squeezed: set[Site] = field(default_factory=set)  # operations that would drop a single channel
    excluded: set[str] = field(default_factory=set)  # layers whose width the code uses elsewhere
    turned: dict[Site, bool] = field(default_factory=dict)  # views to cut along heads -> whether one is left

    def turn_views(self, table: AtomTable, traces: Mapping[str, Trace]) -> bool:
        """Cut views along their heads where attention sums up what they were cut along; true if any is new.

        Where no dimension of a view is left to try, it is cut as if there were no heads.
        """
        found: set[Site] = set()
        for atoms in table.crossed:
            for trace in traces.values():
                key = _view_of(atoms, trace, table)
                if key is not None and self.turned.get(key, True):
                    found.add(key)
        for key in found:
            choice = self.choices.get(key, 0) + 1
            self.turned[key] = choice < table.candidates[key]
            self.choices[key] = choice if self.turned[key] else 0
        return bool(found)

    def apply(self, table: AtomTable, records: Sequence[Record]) -> None:
        """Apply the decisions to a new table."""
        for issue in table.issues.values():
            if issue.layer in self.excluded and issue.kind in ("conv", "linear"):
                table.freeze(issue.atoms, "its width is used elsewhere in the code, where it must not change")
        for record in records:
            if record.site in self.tied:
                ties, extra = _tied_pieces(record)
                table.tie(*ties)
                table.freeze(extra, _reason(record))
            if record.site in self.squeezed:
                for channels in record.inputs:
                    table.freeze(channels.atoms[:2], f"{_place(record)} must not be left with one channel")
            if record.site in self.frozen_inputs:
                for channels in record.inputs:
                    table.freeze(channels.atoms, self.frozen_inputs[record.site])
            if record.site in self.frozen:
                for atoms in record.atoms():
                    table.freeze(atoms, self.frozen[record.site])
            if record.site in self.frozen_constants:
                for atoms in _constants_at(table, record):
                    table.freeze(atoms, self.frozen_constants[record.site])


@dataclass
class Doctor:
    """Decides on remedies for the faults of one trace.

    Each remedy is taken once, and only where a gene is left to take away, so that the rounds end.
    """

    model: nn.Module
    decisions: Decisions
    traces: Mapping[str, Trace]  # of all modes, for a remedy has to do in each
    table: AtomTable
    classes: Atoms
    genes: Genes  # of each atom, -1 where it always stays

    def treat(self, faults: Sequence[Fault], trace: Trace) -> bool:
        """Settle the first fault, and others that have no channel in common with it; false if stuck.

        Faults that share channels may vanish together with the first: they wait for the next round.
        """
        first, *others = (trace.records[fault.record] for fault in faults)
        place = faults[0].record
        # A wrong size may have been made before the operation at which it was noticed.
        if faults[0].strayed and self._freeze_inputs(first):
            return True
        treated = next((r for r in reversed(trace.records[: place + 1]) if self._remedy(r)), None)
        if treated is None:
            return False
        touched = self._classes_at(treated) | self._classes_at(first)
        for record in others:
            own = self._classes_at(record)
            if not own & touched:
                self._remedy(record)
                touched |= own
            elif self._holds_gene(record):
                self._detach(record)
        return True

    def _freeze_inputs(self, record: Record) -> bool:
        """Freeze only what a layer reads, where something else is run in its place.

        Only if there is a gene to take away, and none of the layer's own.
        """
        own = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
        inputs = [channels.atoms for channels in record.inputs]
        if record.site in self.decisions.frozen_inputs or not own or not inputs:
            return False
        kin = set(self.classes[np.concatenate(own)].tolist())
        if kin & set(self.classes[np.concatenate(inputs)].tolist()):
            return False
        if not any((self.genes[atoms] >= 0).any() for atoms in inputs):
            return False
        self.decisions.frozen_inputs[record.site] = _reason(record)
        return True

    def _classes_at(self, record: Record) -> set[int]:
        """The classes of atoms at an operation."""
        return {kin for atoms in record.atoms() for kin in self.classes[atoms].tolist()}

    def _remedy(self, record: Record) -> bool:
        """Take the mildest remedy not yet tried at this operation; false if none is left."""
        if not self._holds_gene(record):
            return False
        if self._detach(record):
            return True
        decisions, site = self.decisions, record.site
        for output in range(len(record.payloads)):
            key = (*site, output)
            left = decisions.choices.get(key, 0) + 1 < self.table.candidates.get(key, 0)
            if left and key not in decisions.turned:
                decisions.choices[key] = decisions.choices.get(key, 0) + 1
                return True
        if record.name in SPLITS and site not in decisions.tied and self._can_be_tied(record):
            decisions.tied.add(site)
        elif record.name in JOINS and site not in decisions.frozen_constants:
            decisions.frozen_constants[site] = _reason(record)
        elif record.name == "squeeze" and site not in decisions.squeezed:
            decisions.squeezed.add(site)
        elif site not in decisions.frozen:
            decisions.frozen[site] = _reason(record)
        else:
            return False
        return True

    def _holds_gene(self, record: Record) -> bool:
        """Whether any channel at an operation can be removed."""
        return any((self.genes[atoms] >= 0).any() for atoms in record.atoms())

    def _can_be_tied(self, record: Record) -> bool:
        """Whether a tie of its pieces would change anything and leave anything free."""
        (first, second), _ = _tied_pieces(record)
        free = self.genes[first] >= 0
        return bool(free.any() and (self.classes[first] != self.classes[second]).any())

    def _detach(self, record: Record) -> bool:
        """Detach the outermost submodule around an operation that has no parameters, if it can be wrapped."""
        for name in record.modules:
            if name and name not in self.decisions.detached and self._maps_channels(name):
                module = self.model.get_submodule(name)
                # Its state would be saved under another name inside a wrapper.
                if not any(True for _ in module.parameters()) and not module.state_dict():
                    self.decisions.detached.add(name)
                    return True
        return False

    def _maps_channels(self, name: str) -> bool:
        """Whether a submodule maps channels to channels, with the same widths in every call."""
        widths = {trace.maps_channels[name] for trace in self.traces.values() if name in trace.maps_channels}
        return len(widths) == 1 and None not in widths


def _view_of(atoms: Atoms, trace: Trace, table: AtomTable) -> Site | None:
    """The last operation that made these channels of several dimensions, and which of its outputs."""
    for record in reversed(trace.records):
        for output, payload in enumerate(record.payloads):
            key = (*record.site, output)
            several = table.candidates.get(key, 0) > 1
            if several and isinstance(payload, Channels) and np.isin(atoms, payload.atoms).all():
                return key
    return None


def _constants_at(table: AtomTable, record: Record) -> list[Atoms]:
    """The atoms of what an operation filled in, by the site that `gather` gave them."""
    issues = table.issues.items()
    return [issue.atoms for site, issue in issues if issue.kind == "constant" and site[:-3] == record.site]


def _place(record: Record) -> str:
    """The operation and its layer, in words."""
    return f"{record.name} in {record.layer or 'forward'}"


def _reason(record: Record) -> str:
    """Why channels at an operation are frozen: a size is written into the code."""
    return f"{_place(record)}: a size or order is written into the code"


def _tied_pieces(record: Record) -> tuple[tuple[Atoms, Atoms], Atoms]:
    """Which atoms to tie so that all pieces of a split lose the same positions, and which then must stay.

    Equal pieces stay equal. Of unequal pieces with a common divisor, blocks of that size are tied; otherwise
    the longer ones keep what they have more than the shortest.
    """
    nothing: Atoms = np.zeros(0, dtype=np.int64)
    if len(record.inputs) != 1:
        return (nothing, nothing), nothing
    whole = record.inputs[0].atoms
    outputs = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
    cuts = {0, len(whole)}
    for source in positions_of(outputs, whole):
        ends = np.flatnonzero(np.diff(source) != 1)
        cuts |= {*source[:1].tolist(), *source[ends + 1].tolist()}
        cuts |= {*(source[-1:] + 1).tolist(), *(source[ends] + 1).tolist()}
    pieces = np.split(whole, sorted(cuts - {0, len(whole)}))
    measure = math.gcd(*(len(piece) for piece in pieces))
    if measure > 1:
        return (whole, np.tile(whole[:measure], len(whole) // measure)), nothing
    least = min(len(piece) for piece in pieces)
    ties = np.concatenate([piece[:least] for piece in pieces]), np.tile(pieces[0][:least], len(pieces))
    return ties, np.concatenate([piece[least:] for piece in pieces])
