"""Genomes to try on a network, chosen so that no operation can pass by luck.

A random genome comes first. Wherever a genome can remove anything, some genome does. Where the forward code
reads sizes, these are tried at their extremes, and at every width that it may decide by (`widths`).
Operations that divide or reorder channels (*moves*) get genomes of their own, for a trace cannot see how the
forward code computes a position: written down as a number, computed from the width of a tensor, or read from
the attributes of layers, which thin copies keep up to date. Only the last is right for every genome. But code
that computes positions from widths does the same for all genomes with equal widths, so two genomes with equal
widths and different expected results (`x.chunk(2, 1)`, 6 + 3 and 3 + 6 channels kept) cannot both come out
right. The same holds for constants that the code applies to channels (`mask[:, 3:] = 0`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.atoms import Bits, Genes, Positions, positions_of
from deeppruning.graph.payloads import Channels
from deeppruning.graph.plan import Plan
from deeppruning.graph.proof.widths import Widths
from deeppruning.graph.repair import filter_repair
from deeppruning.graph.trace.tracer import Record, Trace

# What is observed of a move: the output, and either its width or the order of its channels.
Observable = tuple[int, str]
Seen = dict[Observable, tuple[tuple[int, ...], object]]  # the widths it may depend on, and the expected value


@dataclass(frozen=True)
class Move:
    """An operation with outputs that hold channels of its inputs in another selection or order.

    Or one that applies a constant to them: `sources` are then numbers of its values, and not `ranked`.
    """

    inputs: list[Genes]  # for each input the gene at each position
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
        """The number of input channels."""
        extended = np.append(genome, True)
        return int(sum(extended[genes].sum() for genes in self.inputs))

    def seen(self, genome: Bits) -> Seen:
        """What is expected under this genome, with the widths that code could compute it from."""
        extended = np.append(genome, True)
        kept_in = [extended[genes] for genes in self.inputs]
        widths = tuple(int(kept.sum()) for kept in kept_in)
        ranks = np.append(np.cumsum(np.concatenate(kept_in)) - 1, -1)
        seen: Seen = {}
        for output, (genes, sources) in enumerate(zip(self.outputs, self.sources, strict=True)):
            order = (ranks[sources] if self.ranked else sources)[extended[genes]]
            seen[output, "width"] = (widths, len(order))
            seen[output, "order"] = ((*widths, len(order)), order.tobytes())
        return seen

    def open(self, genomes: Iterable[Bits]) -> set[Observable]:
        """The observables that, as far as these genomes show, might be computed from widths."""
        return set(_single_valued(self.seen(genome) for genome in genomes))

    def contrast(self, genomes: NDArray[np.bool_], wanted: set[Observable]) -> tuple[int, int] | None:
        """Two genomes that give one of these observables two values for the same widths, if there are."""
        first: dict[tuple[Observable, tuple[int, ...]], tuple[int, object]] = {}
        for number, genome in enumerate(genomes):
            for observable, (widths, value) in self.seen(genome).items():
                if observable in wanted:
                    before, first_value = first.setdefault((observable, widths), (number, value))
                    if first_value != value:
                        return before, number
        return None


def _single_valued(all_seen: Iterable[Seen]) -> Iterator[Observable]:
    """What had the same value in all trials of the same widths so far."""
    values: dict[Observable, dict[tuple[int, ...], set[object]]] = {}
    for seen in all_seen:
        for observable, (widths, value) in seen.items():
            values.setdefault(observable, {}).setdefault(widths, set()).add(value)
    for observable, by_widths in values.items():
        if all(len(distinct) == 1 for distinct in by_widths.values()):
            yield observable


def find_moves(record: Record, genes: Genes) -> Iterator[Move]:
    """The moves that an operation makes of channels that can be removed."""
    move = find_move(record, genes)
    if move is not None:
        yield move
    for pattern in record.patterns:
        own = genes[pattern.atoms]
        if (own >= 0).any():
            yield Move([own], [own], [pattern.values], ranked=False)


def find_move(record: Record, genes: Genes) -> Move | None:
    """The move that an operation makes of channels that can be removed; None if it passes them on."""
    outputs = [payload.atoms for payload in record.payloads if isinstance(payload, Channels)]
    sizes = [len(channels.atoms) for channels in record.inputs]
    if not outputs or not sizes:
        return None
    if not any((genes[atoms] >= 0).any() for atoms in record.atoms()):
        return None
    sources = positions_of(outputs, np.concatenate([channels.atoms for channels in record.inputs]))
    if all((source < 0).all() for source in sources):
        return None  # a layer, which makes new channels
    if all(_handed_on(source, sizes) for source in sources):
        return None
    return Move(
        [genes[channels.atoms] for channels in record.inputs], [genes[atoms] for atoms in outputs], sources
    )


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


CANDIDATES = 24  # random genomes among which a pair for a move is looked for first
DIGITS = 4  # binary, of the numbers by which sizes that are read are told apart: two genomes each


class Trials:
    """Collects the genomes for one plan; the same for the same plan."""

    def __init__(self, plan: Plan, genes: Genes, traces: Sequence[Trace]) -> None:
        self.plan = plan
        self.repair = filter_repair(plan)
        self.generator = np.random.default_rng(0)
        self.records = [record for trace in traces for record in trace.records]
        self.genes = genes
        self.moves = _distinct(move for record in self.records for move in find_moves(record, genes))
        named = sorted({place for trace in traces for place in trace.parameter_sizes})
        cuts = [dict(plan.uncut.parameters.get(name, ())).get(dimension) for name, dimension in named]
        strips = [plan.strips[strip] for strip in cuts if strip is not None]
        self.read = _free_sets([*(genes[atoms] for trace in traces for atoms in trace.sizes), *strips])
        self.widths = Widths(plan, genes, traces, np.random.default_rng(1))
        self.emptied = self._mended(np.zeros(plan.num_genes, dtype=np.bool_))

    def genomes(self) -> Iterator[Bits]:
        """All genomes to try, made on demand: the first one finds most faults."""
        tried = [self._mended(self.generator.random(self.plan.num_genes) < 0.5)]
        yield tried[0]
        if self.moves:
            self._contrast_moves(tried)
        self._remove_everywhere(tried)
        yield from tried[1:]
        further = [*(self._structured() if self.moves else ()), *self._extremes()]
        yield from {genome.tobytes(): genome for genome in further}.values()
        by_width = [self._mended(genome) for genome in self.widths.genomes([*tried, *further])]
        yield from self.widths.different(by_width)
        yield from self._emptied_moves([*tried, *further])

    def _mended(self, genome: Bits) -> Bits:
        """The genome as it would be cut."""
        return np.asarray(self.repair(genome[None])[0])

    def _structured(self) -> list[Bits]:
        """Of every layer the first half, the last, every second filter, the others, one only; and most.

        Code that computes sizes by proportion and rounds is wrong at the smallest size if anywhere.
        """
        count = self.plan.num_genes
        genomes = np.ones((4, count), dtype=np.bool_)
        for layer in self.plan.layers:
            own = np.unique(layer.genes[layer.genes >= 0])
            half = len(own) // 2
            genomes[0, own[half:]] = genomes[1, own[:half]] = False
            genomes[2, own[1::2]] = genomes[3, own[::2]] = False
        most = self.generator.random((1, count)) < 0.8
        return [*self.repair(np.concatenate([genomes, most])), self.emptied]

    def _extremes(self) -> Iterator[Bits]:
        """Where sizes are read: one channel left, all but one, and any two sizes told apart.

        Everything that is not read counts as one more size; of very many sizes, not all are told apart.
        """
        if not self.read:
            return
        yield self.emptied
        full = np.ones(self.plan.num_genes, dtype=np.bool_)
        nearly_full, unread = full.copy(), full.copy()
        for free in self.read:
            nearly_full[free[-1]] = unread[free] = False
        yield self._mended(nearly_full)
        sizes = [*self.read, np.flatnonzero(unread)]
        for digit in range(min(DIGITS, (len(sizes) - 1).bit_length())):
            for side in (0, 1):
                genome = full.copy()
                for number, free in enumerate(sizes):
                    genome[free] &= (number >> digit) % 2 == side
                yield self._mended(genome)

    def _emptied_moves(self, genomes: list[Bits]) -> Iterator[Bits]:
        """A genome for each move that can have fewer channels than under all other genomes."""
        for move in self.moves:
            emptied = np.ones(self.plan.num_genes, dtype=np.bool_)
            emptied[move.free] = False
            genome = self._mended(emptied)
            if move.width(genome) < min(move.width(other) for other in genomes):
                yield genome

    def _contrast_moves(self, genomes: list[Bits]) -> None:
        """Add pairs until no move can pass that follows widths alone; independent moves share a pair."""
        pairs = [(move, pair) for move in self.moves for pair in self._pairs(move, genomes)]
        genomes += [self._mended(genome) for genome in _merged(pairs, genomes[0])]
        for move, pair in pairs:  # where others in the same genome, or its repair, have spoilt a pair
            if move.open(genomes) - move.open([*genomes, *pair]):
                genomes += pair

    def _pairs(self, move: Move, genomes: Sequence[Bits]) -> list[tuple[Bits, Bits]]:
        """Pairs of genomes, full elsewhere, for everything that these genomes leave open about a move."""
        wanted = move.open(genomes)
        pairs: list[tuple[Bits, Bits]] = []
        for candidates in (self._halves(move.free), self._single_removals(move.free)):
            while wanted and (places := move.contrast(candidates, wanted)):
                pairs.append((candidates[places[0]], candidates[places[1]]))
                wanted &= move.open([*genomes, *(genome for pair in pairs for genome in pair)])
        return pairs

    def _halves(self, free: Genes) -> NDArray[np.bool_]:
        """Genomes that each lose a random half of the free genes."""
        candidates = np.ones((CANDIDATES, self.plan.num_genes), dtype=np.bool_)
        for genome in candidates:
            genome[self.generator.permutation(free)[: (len(free) + 1) // 2]] = False
        return self.repair(candidates)

    def _single_removals(self, free: Genes) -> NDArray[np.bool_]:
        """Trials that remove one gene each."""
        candidates = np.ones((len(free), self.plan.num_genes), dtype=np.bool_)
        candidates[np.arange(len(free)), free] = False
        return self.repair(candidates)

    def _remove_everywhere(self, genomes: list[Bits]) -> None:
        """Add genomes until something is removed wherever a genome can remove anything."""
        frees = _free_sets(self.genes[atoms] for record in self.records for atoms in record.atoms())
        left = [free for free in frees if all(genome[free].all() for genome in genomes)]
        while left:
            emptied = np.ones(self.plan.num_genes, dtype=np.bool_)
            emptied[np.concatenate(left)] = False
            genome = self._mended(emptied)
            still = [free for free in left if genome[free].all()]
            if len(still) == len(left):
                return
            genomes.append(genome)
            left = still


def _merged(pairs: Sequence[tuple[Move, tuple[Bits, Bits]]], base: Bits) -> list[Bits]:
    """As few pairs as hold all of these; pairs with common genes are kept apart."""
    slots: list[tuple[Bits, Bits, Bits]] = []  # the two genomes, and the genes that are settled in them
    for move, (first, second) in pairs:
        free = move.free
        slot = next((slot for slot in slots if not slot[2][free].any()), None)
        if slot is None:
            slot = (base.copy(), base.copy(), np.zeros(len(base), dtype=np.bool_))
            slots.append(slot)
        slot[0][free], slot[1][free], slot[2][free] = first[free], second[free], True
    return [genome for slot in slots for genome in slot[:2]]


def _free_sets(places: Iterable[Genes]) -> list[Genes]:
    """The genes at each place where there are any, equal places once."""
    distinct = {genes.tobytes(): genes for genes in places if (genes >= 0).any()}
    return [np.unique(genes[genes >= 0]) for genes in distinct.values()]


def _distinct(moves: Iterable[Move]) -> list[Move]:
    """Each move once, though a network may make it at many places and in both modes."""
    distinct: dict[tuple[bool, bytes], Move] = {}
    for move in moves:
        parts = (*move.inputs, *move.outputs, *move.sources)
        distinct.setdefault((move.ranked, b"|".join(part.tobytes() for part in parts)), move)
    return list(distinct.values())
