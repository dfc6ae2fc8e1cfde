"""Remedies: what to do where a thin copy of a network does not do what the silenced one does.

The mildest remedy that helps is taken: run a parameter-free submodule at its old width, cut another
axis of a view, tie the pieces of a split, and last freeze the channels at the operation that has a
size written into it.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from deeppruning.graph.atoms import AtomTable, Ids
from deeppruning.graph.labels import Channels
from deeppruning.graph.probe import Fault
from deeppruning.graph.trace import Record, Trace

SPLITS = ("split", "slice", "narrow", "chunk")
JOINS = ("constant_pad_nd", "cat")


@dataclass
class Decisions:
    """What probes have taught about a network so far; a trace starts over with them."""

    detached: set[str] = field(default_factory=set)
    choices: dict[Hashable, int] = field(default_factory=dict)
    tied: set[Hashable] = field(default_factory=set)
    frozen: dict[Hashable, str] = field(default_factory=dict)
    frozen_constants: dict[Hashable, str] = field(default_factory=dict)

    def apply(self, table: AtomTable, records: Sequence[Record]) -> None:
        """Tie and freeze in a fresh table what has been decided."""
        for record in records:
            if record.site in self.tied:
                _tie_pieces(table, record)
            if record.site in self.frozen:
                for ids in record.ids():
                    table.freeze(ids, self.frozen[record.site])
            if record.site in self.frozen_constants:
                for ids in _constants_at(table, record):
                    table.freeze(ids, self.frozen_constants[record.site])


@dataclass
class Doctor:
    """Decides on remedies for the faults of one trace."""

    model: nn.Module
    decisions: Decisions
    table: AtomTable
    classes: Ids

    def treat(self, faults: Sequence[Fault], trace: Trace) -> bool:
        """Settle the first fault, and others that have no channel in common with it; false if stuck.

        Faults that share channels may vanish together with the first: they wait for the next round.
        """
        first, *others = (trace.records[fault.record] for fault in faults)
        place = faults[0].record
        # A wrong size may have been made before the operation at which it was noticed.
        treated = next((r for r in reversed(trace.records[: place + 1]) if self._remedy(r, trace)), None)
        if treated is None:
            return False
        touched = self._classes_at(treated) | self._classes_at(first)
        for record in others:
            own = self._classes_at(record)
            if not own & touched:
                self._remedy(record, trace)
                touched |= own
            else:
                self._detach(record, trace)
        return True

    def _classes_at(self, record: Record) -> set[int]:
        return {label for ids in record.ids() for label in self.classes[ids].tolist()}

    def _remedy(self, record: Record, trace: Trace) -> bool:
        """Take the mildest remedy not tried yet at this operation; false if there is none left."""
        if self._detach(record, trace):
            return True
        known, site = self.decisions, record.site
        reason = f"{record.name} in {record.layer or 'forward'}: a size or order is written into the code"
        for output in range(len(record.payloads)):
            key = (*site, output) if isinstance(site, tuple) else (site, output)
            if known.choices.get(key, 0) + 1 < self.table.candidates.get(key, 0):
                known.choices[key] = known.choices.get(key, 0) + 1
                return True
        if record.name in SPLITS and site not in known.tied and record.ids():
            known.tied.add(site)
        elif record.name in JOINS and site not in known.frozen_constants:
            known.frozen_constants[site] = reason
        elif record.ids() and site not in known.frozen:
            known.frozen[site] = reason
        else:
            return False
        return True

    def _detach(self, record: Record, trace: Trace) -> bool:
        """Detach the outermost submodule around an operation that has no parameters, if it can be wrapped."""
        for name in record.modules:
            if name and name not in self.decisions.detached and trace.maps_channels.get(name, False):
                module = self.model.get_submodule(name)
                # What it saves would change its name inside a wrapper.
                if not any(True for _ in module.parameters()) and not module.state_dict():
                    self.decisions.detached.add(name)
                    return True
        return False


def _constants_at(table: AtomTable, record: Record) -> list[Ids]:
    found = []
    for owner, issue in table.issues.items():
        if issue.kind == "constant" and isinstance(owner, tuple):
            place = owner[0]
            if isinstance(place, tuple) and place[:-1] == record.site:
                found.append(issue.ids)
    return found


def _tie_pieces(table: AtomTable, record: Record) -> None:
    """A split into equal pieces stays one when all pieces lose the same positions."""
    piece = record.payloads[0]
    if not record.inputs or not isinstance(piece, Channels):
        return
    whole, size = record.inputs[0].ids, len(piece.ids)
    if size and len(whole) % size == 0:
        table.tie(whole, np.tile(whole[:size], len(whole) // size))


def count_operations(traces: Mapping[str, Trace]) -> int:
    """Operations of all runs together."""
    return sum(len(trace.records) for trace in traces.values())
