"""Atoms: one number for each channel that a layer makes, and which of them are removed together.

A convolution with 16 filters issues 16 atoms. Adding two activations ties their atoms; an operation
that is not understood freezes them. The result of a run are classes of tied atoms.

>>> table = AtomTable()
>>> a = table.issue(("conv1",), 2, kind="conv", layer="conv1")
>>> b = table.issue(("conv2",), 2, kind="conv", layer="conv2")
>>> table.tie(a, b)
>>> bool(table.classes()[a[0]] == table.classes()[b[0]])
True
"""

import copy
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Atoms = NDArray[np.int64]
Positions = NDArray[np.int64]  # along a dimension
Bits = NDArray[np.bool_]  # one genome, or a population of them in rows
Genes = NDArray[np.int64]  # one gene per position (or atom), -1 for what always stays
Site = tuple[Hashable, ...]  # a place in the network: an operation of the run, or a dimension of a parameter


@dataclass(frozen=True)
class Issue:
    """Atoms that are made together: the filters of one layer, or padding zeros."""

    start: int
    size: int
    kind: str  # "conv", "linear", "constant", "fixed", "loose" or "module"
    layer: str
    kernel: tuple[int, ...] = ()

    @property
    def atoms(self) -> Atoms:
        """The atoms, in the order of the channels."""
        return np.arange(self.start, self.start + self.size, dtype=np.int64)


@dataclass(frozen=True)
class Heads:
    """Where attention multiplies head by head."""

    modules: tuple[str, ...]  # the call stack of submodules, outermost first
    atoms: Atoms  # one for each head, once
    widths: frozenset[int]  # channels of a head


@dataclass
class AtomTable:
    """All atoms of one network, their ties, the frozen ones, and the parameter dimensions they index.

    Atom 0 does not exist: in label tensors 0 stands for a constant that belongs to no channel.
    """

    issues: dict[Site, Issue] = field(default_factory=dict)
    bound: dict[tuple[str, int], Atoms] = field(default_factory=dict)  # (parameter, dimension) -> atoms
    frozen: list[tuple[Atoms, str]] = field(default_factory=list)
    grouped: dict[str, int] = field(
        default_factory=dict
    )  # weight with groups that go whole -> rows per group
    norms: dict[tuple[str, int], Atoms] = field(default_factory=dict)  # (norm layer, dimension) -> atoms
    pinned: dict[str, str] = field(default_factory=dict)  # parameter that is never cut -> the reason
    choices: dict[Site, int] = field(default_factory=dict)  # operation -> which dimension of a view is cut
    candidates: dict[Site, int] = field(default_factory=dict)  # operation -> dimensions there are to cut
    whole_heads: bool = False  # whether heads of attention may go; otherwise it stays whole
    heads: list[Heads] = field(default_factory=list)
    crossed: list[Atoms] = field(default_factory=list)  # channels that attention sums up inside each head
    size: int = 1
    _ties: list[tuple[Atoms, Atoms]] = field(default_factory=list)

    def issue(self, site: Site, size: int, *, kind: str, layer: str, kernel: tuple[int, ...] = ()) -> Atoms:
        """The atoms of this site: new ones the first time, the same ones afterwards."""
        if site not in self.issues:
            self.issues[site] = Issue(self.size, size, kind, layer, kernel)
            self.size += size
        return self.issues[site].atoms

    def fork(self) -> "AtomTable":
        """An independent copy."""
        return AtomTable(**{part.name: copy.copy(getattr(self, part.name)) for part in fields(self)})

    def tie(self, first: Atoms, second: Atoms) -> None:
        """These pairs of atoms are kept or removed together."""
        if first is not second:
            self._ties.append((first, second))

    def freeze(self, atoms: Atoms, reason: str) -> None:
        """These atoms always stay, for this reason."""
        if len(atoms):
            self.frozen.append((np.unique(atoms), reason))

    def bind(self, parameter: str, dimension: int, atoms: Atoms) -> None:
        """This dimension of the parameter is indexed by these atoms; bound twice, both are tied."""
        bound = self.bound.setdefault((parameter, dimension), atoms)
        self.tie(bound, atoms)

    def pin(self, parameter: str, reason: str) -> None:
        """No dimension of this parameter may be cut: some operation reads it whole."""
        self.pinned.setdefault(parameter, reason)

    def freeze_pinned(self) -> None:
        """Freeze the channels that index a pinned parameter, once all of them are known."""
        for (parameter, _), atoms in self.bound.items():
            if parameter in self.pinned:
                self.freeze(atoms, self.pinned[parameter])

    def classes(self) -> Atoms:
        """For each atom the smallest atom it is tied to, directly or through others."""
        if not self._ties:
            return np.arange(self.size, dtype=np.int64)
        first, second = (np.concatenate(side) for side in zip(*self._ties, strict=True))
        return components(self.size, first, second)

    def reasons(self, classes: Atoms) -> dict[int, list[str]]:
        """Class -> why it is frozen; classes that are free do not appear."""
        reasons: dict[int, list[str]] = {}
        for atoms, reason in self.frozen:
            for kin in np.unique(classes[atoms]).tolist():
                listed = reasons.setdefault(kin, [])
                if reason not in listed:
                    listed.append(reason)
        return reasons


def components(size: int, first: Atoms, second: Atoms) -> Atoms:
    """Connected components: each node gets the smallest number of its component.

    Hooking and pointer jumping over arrays: a few sweeps even for chains of a thousand layers.
    """
    lowest: Atoms = np.arange(size, dtype=np.int64)
    while True:
        left, right = lowest[first], lowest[second]
        if np.array_equal(left, right):
            return lowest
        low = np.minimum(left, right)
        np.minimum.at(lowest, left, low)
        np.minimum.at(lowest, right, low)
        while True:
            jumped = lowest[lowest]
            if np.array_equal(jumped, lowest):
                break
            lowest = jumped


def positions_of(wanted: Iterable[Atoms], among: Atoms) -> list[Positions]:
    """The positions of each wanted sequence of atoms among the others, -1 for an atom that is absent.

    An atom may occur several times, because tied channels may share a label: a sequence is first searched in
    one piece, behind the previous one; otherwise its atoms are taken in the order in which they occur.
    """
    positions: list[Positions] = []
    end = 0
    for atoms in wanted:
        start = _run_in(atoms, among, end)
        if start is None:
            positions.append(_one_by_one(atoms, among))
        else:
            end = start + len(atoms)
            positions.append(np.arange(start, end))
    return positions


def _run_in(atoms: Atoms, among: Atoms, behind: int) -> int | None:
    """The start of a sequence of atoms that stand in one run among the others."""
    if not 0 < len(atoms) <= len(among):
        return None
    starts = np.flatnonzero(among[: len(among) - len(atoms) + 1] == atoms[0]).tolist()
    places = [start for start in starts if np.array_equal(among[start : start + len(atoms)], atoms)]
    return next((place for place in places if place >= behind), places[0] if places else None)


def _one_by_one(atoms: Atoms, among: Atoms) -> Positions:
    """The position of each atom among the others."""
    if not len(among):
        return np.full(len(atoms), -1, dtype=np.int64)
    order = np.argsort(among, kind="stable")
    distinct, first, counts = np.unique(among[order], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(distinct, atoms), len(distinct) - 1)
    turn = np.argsort(np.argsort(atoms, kind="stable"), kind="stable")
    turn -= np.searchsorted(np.sort(atoms), atoms)  # how often the atom has come before
    source = order[first[place] + turn % counts[place]]
    return np.where(distinct[place] == atoms, source, -1)
