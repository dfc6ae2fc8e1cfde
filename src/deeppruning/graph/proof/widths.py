"""Widths to try where forward code decides by sizes: those at which a question has another answer.

`if x.shape[1] == 5` has one answer at 5 channels and another at all other widths. A question that some width
answers otherwise leads to code that was not traced, which may ask further; so every width is tried where
there are few, and one for each combination of answers, and some more, where there are many. What the code may
ask there about other layers is not followed: where such a question freezes nothing, it is noted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeppruning.graph.atoms import Bits, Genes
from deeppruning.graph.plan import Plan
from deeppruning.graph.trace.sizes import Formula, sources_of, value_of
from deeppruning.graph.trace.tracer import Trace

EVERY = (
    64  # widths of a size up to which all are tried, if code decides by it or uses it in ways that are unseen
)
EVERY_READ = 16  # the same for all other sizes that are read, for they may be used in more than one way
SPREAD = 24  # widths to try at least where there are more
FEW = 8  # values of an argument, up to which each is tried
PAIRS = 256  # random genomes for questions about two sizes


@dataclass(frozen=True)
class Question:
    """A formula whose value decides, over the genes at the positions of each of its sources."""

    formula: Formula
    strips: Mapping[int, Genes]  # source -> the gene at each position
    place: str
    exact: bool  # a question of the code, rather than an argument of torch

    @property
    def free(self) -> dict[bytes, Genes]:
        """The different sizes among its sources that genes decide about."""
        return {strip.tobytes(): strip for strip in self.strips.values() if (strip >= 0).any()}

    def answers(self, genomes: NDArray[np.bool_]) -> NDArray[np.generic]:
        """The answer under each genome."""
        extended = np.pad(genomes, ((0, 0), (0, 1)), constant_values=True)
        widths = {number: extended[:, strip].sum(axis=1) for number, strip in self.strips.items()}
        return np.broadcast_to(value_of(self.formula, widths), len(extended))

    def answers_at(self, widths: NDArray[np.int64]) -> NDArray[np.generic]:
        """The answer at each width of its only free size."""
        fixed = {number: np.array(len(strip)) for number, strip in self.strips.items() if (strip < 0).all()}
        sizes = dict.fromkeys(self.strips, widths) | fixed
        return np.broadcast_to(value_of(self.formula, sizes), len(widths))


class Widths:
    """The sizes that a network reads, as far as genes decide about them, and what is asked about them."""

    def __init__(
        self, plan: Plan, genes: Genes, traces: Sequence[Trace], generator: np.random.Generator
    ) -> None:
        self.plan = plan
        self.generator = generator
        self.notes: list[str] = []
        self.read: dict[bytes, Genes] = {}
        self.unseen: set[bytes] = set()
        self.questions: list[Question] = []
        for trace in traces:
            book = trace.book
            strips = [_strip(plan, genes, source) for source in book.sources]
            free = {number for number, strip in enumerate(strips) if (strip >= 0).any()}
            self.read |= {strips[number].tobytes(): strips[number] for number in free & book.read}
            self.unseen |= {strips[number].tobytes() for number in book.unseen}
            for listed, exact in ((book.questions, True), (book.arguments, False)):
                for formula, place in listed.items():
                    used = sources_of(formula)
                    if used & free:
                        own = {number: strips[number] for number in used}
                        self.questions.append(Question(formula, own, place, exact))
        self.asked = {key: strip for question in self.questions for key, strip in question.free.items()}

    def genomes(self, tried: Sequence[Bits]) -> Iterator[Bits]:
        """Genomes beyond those tried, not repaired; sizes without common genes share them."""
        tried_bits = np.pad(np.asarray(tried), ((0, 0), (0, 1)), constant_values=True)
        slots: list[tuple[Bits, list[list[Genes]]]] = []  # genes that are taken, and removals of each size
        for strip in (self.read | self.asked).values():
            removals = self._removals(strip, tried_bits[:, strip].sum(axis=1).tolist())
            if removals:
                own = np.unique(strip[strip >= 0])
                alone = (
                    strip.tobytes() in self.asked
                )  # a test may be one of two, which others answer when full
                slot = next((slot for slot in slots if not slot[0][own].any() and not alone), None)
                if slot is None:
                    slot = (np.zeros(self.plan.num_genes, dtype=np.bool_), [])
                    slots.append(slot)
                slot[0][own] = True
                slot[1].append(removals)
        for _, sizes in slots:
            for turn in range(max(map(len, sizes))):
                genome = np.ones(self.plan.num_genes, dtype=np.bool_)
                for removals in sizes:
                    genome[removals[turn % len(removals)]] = False
                yield genome
        for question in self.questions:
            if len(question.free) > 1:
                yield from self._joint(question, np.asarray(tried))

    def different(self, genomes: Sequence[Bits]) -> list[Bits]:
        """One genome for each combination of sizes."""
        strips = [*(self.read | self.asked).values()]
        by_sizes: dict[tuple[int, ...], Bits] = {}
        for genome in genomes:
            extended = np.append(genome, True)
            by_sizes.setdefault(tuple(int(extended[strip].sum()) for strip in strips), genome)
        return list(by_sizes.values())

    def _removals(self, strip: Genes, tried_widths: Sequence[int]) -> list[Genes]:
        """Which genes of a size to remove, one entry for each width to try that is not tried yet."""
        order, counts = np.unique(strip[strip >= 0], return_counts=True)
        shuffled = self.generator.permutation(len(order))
        widths = len(strip) - np.concatenate([[0], np.cumsum(counts[shuffled])])
        widths = widths[widths > 0]  # something always stays
        own = [question for question in self.questions if [*question.free] == [strip.tobytes()]]
        asked = [(question, question.answers_at(widths)) for question in own]
        tests = [
            (question, answers)
            for question, answers in asked
            if question.exact and len(np.unique(answers)) > 1
        ]
        wanted: set[int] = set()
        if tests:
            wanted = self._decided(
                [answers for _, answers in tests], [question.place for question, _ in tests]
            )
        elif strip.tobytes() in self.read:
            most = EVERY if strip.tobytes() in self.unseen else EVERY_READ
            wanted = set(range(len(widths) if len(widths) <= most else 0))
        for question, answers in asked:
            values = np.unique(answers)
            if not question.exact and len(values) <= FEW:
                wanted |= {int(np.flatnonzero(answers == value)[-1]) for value in values}
        left = [place for place in sorted(wanted) if int(widths[place]) not in tried_widths]
        return [order[shuffled[:place]] for place in left if place]

    def _decided(self, tests: Sequence[NDArray[np.generic]], places: Sequence[str]) -> set[int]:
        """The widths to try of a size that questions with these answers are about, by their places."""
        count = len(tests[0])
        wanted = set(range(count))
        if count > EVERY:
            table = np.stack([np.unique(answers, return_inverse=True)[1] for answers in tests])
            _, first, which = np.unique(table, axis=1, return_index=True, return_inverse=True)
            last = count - 1 - np.unique(which[::-1], return_index=True)[1]
            spread = np.unique(np.geomspace(1, count - 1, SPREAD).astype(int))
            wanted = {*first[:EVERY].tolist(), *last[:EVERY].tolist()}
            wanted |= {*spread.tolist(), *(count - 1 - spread).tolist()}
        for place in places:
            self._note(f"{place} decides by a number of channels: tried at {len(wanted)} of {count} widths")
        return wanted

    def _note(self, text: str) -> None:
        """What is found right at the widths that are tried may still be wrong where two layers are cut."""
        self.notes += [text] if text not in self.notes else []

    def _joint(self, question: Question, tried: NDArray[np.bool_]) -> Iterator[Bits]:
        """Genomes that answer a question about several sizes otherwise than all that are tried."""
        strips = list(question.free.values())
        candidates = np.ones((PAIRS, self.plan.num_genes), dtype=np.bool_)
        for number, genome in enumerate(candidates):
            aim = self.generator.random()  # a common width every other time, for sizes that are compared
            for strip in strips:
                own = np.unique(strip[strip >= 0])
                share = aim * min(map(len, strips)) / len(strip) if number % 2 else self.generator.random()
                stay = min(max(1, round(share * len(own))), len(own))
                genome[self.generator.permutation(own)[stay:]] = False
        answers = question.answers(candidates)
        given = set(question.answers(tried).tolist())
        values, first = np.unique(answers, return_index=True)
        if question.exact and len(values) > 1:
            self._note(f"{question.place} decides by the numbers of channels of several layers")
        new = [int(place) for value, place in zip(values.tolist(), first, strict=True) if value not in given]
        if question.exact or len(values) <= FEW:
            yield from (candidates[place] for place in new[:FEW])


def _strip(plan: Plan, genes: Genes, source: object) -> Genes:
    """The gene at each position of a size that is read; none where nothing can be removed."""
    if isinstance(source, np.ndarray):
        return np.asarray(genes[source])
    assert isinstance(source, tuple)
    name, dimension = source
    for own, strip in plan.uncut.parameters.get(name, ()):
        if own == dimension:
            return plan.strips[strip]
    return np.full(plan.shapes[name][dimension], -1)
