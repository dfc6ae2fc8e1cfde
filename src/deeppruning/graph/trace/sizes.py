"""Sizes that forward code reads, as numbers that write down what is decided by them.

A traced run gives its code a `Size` in place of each number of channels. It is an `int` to torch and to the
code, but what is computed from it is a `Size` (or a `Ratio`) again, with its formula; and where it is
compared, looked up or made a plain number, the formula goes into the book as a question. The answers at other
widths then tell which widths to try.

>>> book = SizeBook()
>>> width = book.size(8, ("conv.weight", 0))
>>> width // 3 == 2, list(book.questions)
(True, [('eq', ('floordiv', ('size', 0), 3), 2)])
>>> value_of(('eq', ('floordiv', ('size', 0), 3), 2), {0: np.array([5, 6, 8, 9])}).tolist()
[False, True, True, False]

What Python does with an integer without asking its class stays unseen: `range(c)`, `table[c]` of a list,
`math.gcd(c, 8)`, `0.5 * c`, `len(x)`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

Formula = Any  # a plain number, ("size", number of the source), or (operation, formula, ...)
Answers = NDArray[Any]

DEEPEST = 40  # operations in a formula, and questions in a book: loops of the forward code may make many
MOST_QUESTIONS = 2000

COMPUTED: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "xor")
} | {"and": operator.and_, "or": operator.or_}
COMPARED: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
SINGLE: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": operator.abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}
VECTORS: dict[str, Callable[..., Any]] = {
    **{"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "pow": np.float_power},
    "truth": lambda values: values != 0,
}


class SizeBook:
    """The sizes that one run reads, and the questions that its code asks about them."""

    def __init__(self, place: Callable[[], str] = lambda: "forward") -> None:
        self.place = place
        self.sources: list[Any] = []  # atoms of channels, or a parameter and its dimension
        self.numbers: dict[Hashable, int] = {}
        self.given: list[tuple[int, Size]] = []  # those that were read from tensors, with their numbers
        self.questions: dict[Formula, str] = {}  # formula -> the module whose code asks
        self.arguments: dict[Formula, str] = {}  # formulas that are handed to torch
        self.closed = False

    def size(self, value: int, source: Any, *, read: bool = True) -> Size:
        """A size that is read, or may be; equal sources are one."""
        key = source.tobytes() if isinstance(source, np.ndarray) else source
        number = self.numbers.setdefault(key, len(self.sources))
        if number == len(self.sources):
            self.sources.append(source)
        made = Size(value, self, ("size", number))
        if read:
            self.given.append((number, made))
        return made

    @property
    def read(self) -> set[int]:
        """The numbers of the sizes that were read from tensors."""
        return {number for number, _ in self.given}

    @property
    def unseen(self) -> set[int]:
        """Those of them that were read without a use that shows."""
        return {number for number, size in self.given if not size.seen}

    def ask(self, formula: Formula) -> None:
        """The answer decides about the run."""
        if not self.closed and len(self.questions) < MOST_QUESTIONS:
            self.questions.setdefault(formula, self.place())

    @contextmanager
    def shut(self) -> Iterator[None]:
        """What is asked meanwhile is not asked by the network."""
        before, self.closed = self.closed, True
        try:
            yield
        finally:
            self.closed = before

    def hand_over(self, values: Any) -> None:
        """Arguments of a function of torch: what is computed from sizes may have few values (`c % 4`)."""
        for value in values:
            kind = type(value)
            if kind is tuple or kind is list:
                self.hand_over(value)
            elif kind is slice:
                self.hand_over((value.start, value.stop, value.step))
            elif isinstance(value, Counted):
                value.seen = True
                if value.depth and len(self.arguments) < MOST_QUESTIONS:
                    self.arguments.setdefault(("pos", value.formula), self.place())


class Counted:
    """What `Size` and `Ratio` have in common: arithmetic keeps the formula, comparisons ask."""

    plain: Any
    book: SizeBook | None
    formula: Formula
    depth: int
    seen: bool = False  # whether anything was computed from it or decided by it, or torch was given it

    def _derived(self, value: Any, name: str, *others: Any) -> Any:
        """The number that arithmetic gives, with its formula."""
        for each in (self, *others):
            if isinstance(each, Counted):
                each.seen = True
        depth = 1 + max(getattr(each, "depth", 0) for each in (self, *others))
        formula = (name, *(getattr(each, "formula", each) for each in others))
        kind = Size if type(value) is int else Ratio if type(value) is float else None
        if kind is None or self.book is None:
            return value
        if depth > DEEPEST:
            self.book.ask(formula)
            return value
        return kind(value, self.book, formula, depth)

    def _ask(self, *formula: Any) -> None:
        """Note a comparison: its answer decides about the run."""
        self.seen = True
        if self.book is not None:
            self.book.ask(tuple(getattr(each, "formula", each) for each in formula))

    def __bool__(self) -> bool:
        self._ask("truth", self)
        return bool(self.plain)

    def __hash__(self) -> int:
        self._ask("pos", self)
        return hash(self.plain)

    def __int__(self) -> int:
        self._ask("trunc", self)
        return int(self.plain)

    def __float__(self) -> float:
        self._ask("pos", self)
        return float(self.plain)

    def __repr__(self) -> str:
        self._ask("pos", self)
        return repr(self.plain)

    __str__ = __repr__

    def __format__(self, style: str) -> str:
        self._ask("pos", self)
        return format(self.plain, style)

    def __reduce__(self) -> Any:
        """A copy is a plain number."""
        return type(self.plain), (self.plain,)


class Size(Counted, int):
    """A whole number that follows from sizes which were read."""

    def __new__(cls, value: int, book: SizeBook | None = None, formula: Formula = 0, depth: int = 0) -> Size:
        made = int.__new__(cls, value)
        made.plain, made.book, made.formula, made.depth = value, book, formula, depth
        return made


class Ratio(Counted, float):
    """Any other number that follows from them."""

    def __new__(
        cls, value: float, book: SizeBook | None = None, formula: Formula = 0, depth: int = 0
    ) -> Ratio:
        made = float.__new__(cls, value)
        made.plain, made.book, made.formula, made.depth = value, book, formula, depth
        return made


def _plain(value: Any) -> Any:
    """The plain number behind a counted one."""
    return value.plain if isinstance(value, Counted) else value


def _two_sided(name: str, compute: Callable[..., Any], *, mirrored: bool) -> Callable[..., Any]:
    """An arithmetic method of two numbers that keeps the formula."""

    def method(self: Counted, other: Any, *rest: Any) -> Any:
        if not isinstance(other, (int, float)) or rest:
            return NotImplemented
        pair = (other, self) if mirrored else (self, other)
        return self._derived(compute(*map(_plain, pair)), name, *pair)

    return method


def _one_sided(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    """An arithmetic method of one number that keeps the formula."""
    return lambda self: self._derived(compute(self.plain), name, self)


def _rounded(self: Counted, digits: int | None = None) -> Any:
    """`round` of a counted number."""
    value = round(self.plain) if digits is None else round(self.plain, digits)
    return self._derived(value, "round", self, *(() if digits is None else (digits,)))


def _divided(self: Any, other: Any) -> Any:
    """`divmod` of a counted number."""
    return (self // other, self % other) if isinstance(other, (int, float)) else NotImplemented


def _comparing(name: str, compare: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison that is noted as a question about sizes."""

    def method(self: Counted, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        self._ask(name, self, other)
        return compare(self.plain, _plain(other))

    return method


for _name, _function in COMPUTED.items():
    setattr(Counted, f"__{_name}__", _two_sided(_name, _function, mirrored=False))
    setattr(Counted, f"__r{_name}__", _two_sided(_name, _function, mirrored=True))
for _name, _function in SINGLE.items():
    setattr(Counted, f"__{_name}__", _one_sided(_name, _function))
for _name, _function in COMPARED.items():
    setattr(Counted, f"__{_name}__", _comparing(_name, _function))
setattr(Counted, "__round__", _rounded)  # noqa: B010 - typed otherwise in int and float
setattr(Counted, "__divmod__", _divided)  # noqa: B010


def value_of(formula: Formula, widths: Mapping[int, NDArray[np.int64]]) -> Answers:
    """The value of a formula for many widths of its sources at once."""
    if not isinstance(formula, tuple):
        return np.asarray(formula)
    name, *parts = formula
    if name == "size":
        return np.asarray(widths[parts[0]])
    function = {**COMPUTED, **COMPARED, **SINGLE, **VECTORS}[name]
    with np.errstate(all="ignore"):
        return np.asarray(function(*(value_of(part, widths) for part in parts)))


def sources_of(formula: Formula) -> set[int]:
    """The sources that a formula reads."""
    if not isinstance(formula, tuple):
        return set()
    if formula[0] == "size":
        return {formula[1]}
    return set().union(*map(sources_of, formula[1:]))
