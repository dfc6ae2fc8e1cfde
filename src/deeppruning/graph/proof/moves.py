"""What operations that divide or reorder channels do to the channels that stay under a genome.

A trace cannot see how the forward code came by a position: written down as a number, computed from
the width of a tensor, or read from the attributes of layers, which thin copies keep up to date. Only
the last is right for every genome. But code that computes positions from the widths it is given does
the same for all genomes that leave those widths alike: two genomes that agree in the widths and not in
what is due (`x.chunk(2, 1)`, 6 + 3 and 3 + 6 channels kept) cannot both come out right. So it is with
constants that the code lays on channels (`mask[:, 3:] = 0`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.labels.atoms import Atoms, Positions
from deeppruning.graph.labels.payloads import Channels
from deeppruning.graph.plan import Bits, Genes
from deeppruning.graph.trace.tracer import Record

# What is observed of a move: of which output, and whether its width or the order of its channels.
Observable = tuple[int, str]
Seen = dict[Observable, tuple[tuple[int, ...], object]]  # the widths it may depend on, and what is due


@dataclass(frozen=True)
class Move:
    """An operation whose outputs hold channels of its inputs in another selection or order.

    Or one that lays a constant on them: `sources` then tells its values apart, and none are `ranked`.
    """

    inputs: list[Genes]  # of each input, the gene at each position
    outputs: list[Genes]
    sources: list[
        Positions
    ]  # of each output, the position among all inputs' channels, -1 where there is none
    ranked: bool = True

    @property
    def free(self) -> Genes:
        """The genes that decide about it."""
        genes = np.unique(np.concatenate([*self.inputs, *self.outputs]))
        return np.asarray(genes[genes >= 0])

    def width(self, genome: Bits) -> int:
        """How many channels come in."""
        extended = np.append(genome, True)
        return int(sum(extended[genes].sum() for genes in self.inputs))

    def seen(self, genome: Bits) -> Seen:
        """What is due under this genome, beside the widths that code could compute it from."""
        extended = np.append(genome, True)
        kept_in = [extended[genes] for genes in self.inputs]
        widths = tuple(int(kept.sum()) for kept in kept_in)
        ranks = np.append(np.cumsum(np.concatenate(kept_in)) - 1, -1)
        found: Seen = {}
        for output, (genes, sources) in enumerate(zip(self.outputs, self.sources, strict=True)):
            order = (ranks[sources] if self.ranked else sources)[extended[genes]]
            found[output, "width"] = (widths, len(order))
            found[output, "order"] = ((*widths, len(order)), order.tobytes())
        return found

    def open(self, genomes: Iterable[Bits]) -> set[Observable]:
        """The observables that, for all these genomes show, might be computed from widths."""
        return set(_single_valued(self.seen(genome) for genome in genomes))

    def contrast(self, genomes: NDArray[np.bool_], wanted: set[Observable]) -> tuple[int, int] | None:
        """Two of the genomes that give a wanted observable two values for the same widths, if there are."""
        first: dict[tuple[Observable, tuple[int, ...]], tuple[int, object]] = {}
        for number, genome in enumerate(genomes):
            for observable, (widths, value) in self.seen(genome).items():
                if observable in wanted:
                    before, known = first.setdefault((observable, widths), (number, value))
                    if known != value:
                        return before, number
        return None


def _single_valued(all_seen: Iterable[Seen]) -> Iterator[Observable]:
    values: dict[Observable, dict[tuple[int, ...], set[object]]] = {}
    for seen in all_seen:
        for observable, (widths, value) in seen.items():
            values.setdefault(observable, {}).setdefault(widths, set()).add(value)
    for observable, by_widths in values.items():
        if all(len(found) == 1 for found in by_widths.values()):
            yield observable


def find_moves(record: Record, genes: Genes) -> Iterator[Move]:
    """What an operation does to channels that can go, other than to hand them on."""
    move = find_move(record, genes)
    if move is not None:
        yield move
    for pattern in record.patterns:
        own = genes[pattern.atoms]
        if (own >= 0).any():
            yield Move([own], [own], [pattern.values], ranked=False)


def find_move(record: Record, genes: Genes) -> Move | None:
    """The move that an operation makes of channels that can go; None if it hands them on as they are."""
    outputs = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
    sizes = [len(channels.atoms) for channels in record.inputs]
    if not outputs or not sizes:
        return None
    if not any((genes[atoms] >= 0).any() for atoms in record.atoms()):
        return None
    sources = positions_of(outputs, np.concatenate([channels.atoms for channels in record.inputs]))
    if all((source < 0).all() for source in sources):
        return None  # a layer of its own, that makes new channels of old ones
    if all(_handed_on(source, sizes) for source in sources):
        return None
    return Move(
        [genes[channels.atoms] for channels in record.inputs], [genes[atoms] for atoms in outputs], sources
    )


def positions_of(wanted: Iterable[Atoms], among: Atoms) -> list[Positions]:
    """Where each of the wanted runs of atoms stands among the others, -1 for an atom that is not there.

    An atom may stand at several places, for tied channels may bear one label: a run is first looked
    for in one piece, behind the one before; else its atoms are taken in the order in which they stand.
    """
    found: list[Positions] = []
    end = 0
    for atoms in wanted:
        start = _run_in(atoms, among, end)
        if start is None:
            found.append(_one_by_one(atoms, among))
        else:
            end = start + len(atoms)
            found.append(np.arange(start, end))
    return found


def _run_in(atoms: Atoms, among: Atoms, behind: int) -> int | None:
    if not 0 < len(atoms) <= len(among):
        return None
    starts = np.flatnonzero(among[: len(among) - len(atoms) + 1] == atoms[0]).tolist()
    places = [start for start in starts if np.array_equal(among[start : start + len(atoms)], atoms)]
    return next((place for place in places if place >= behind), places[0] if places else None)


def _one_by_one(atoms: Atoms, among: Atoms) -> Positions:
    if not len(among):
        return np.full(len(atoms), -1, dtype=np.int64)
    order = np.argsort(among, kind="stable")
    known, first, counts = np.unique(among[order], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(known, atoms), len(known) - 1)
    turn = np.argsort(np.argsort(atoms, kind="stable"), kind="stable")
    turn -= np.searchsorted(np.sort(atoms), atoms)  # how often the atom has come before
    source = order[first[place] + turn % counts[place]]
    return np.where(known[place] == atoms, source, -1)


def _handed_on(source: Positions, sizes: list[int]) -> bool:
    """Whether an output is one whole input or all inputs in a row, each position any number of times."""
    starts = np.cumsum([0, *sizes])
    spans = [(0, int(starts[-1])), *zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    for start, stop in spans:
        size = stop - start
        if size and len(source) % size == 0:
            whole = np.arange(start, stop)
            times = len(source) // size
            if np.array_equal(source, np.repeat(whole, times)) or np.array_equal(
                source, np.tile(whole, times)
            ):
                return True
    return False
