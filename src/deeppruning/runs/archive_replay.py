"""The archive of a guided search, found again from what was recorded: who entered it, who holds it when.

>>> told = [Told(0, 1, 100, 0.1), Told(1, 1, 50.0, 0.3, "l1"), Told(2, 2, 52.0, 0.2, "drop", (1,))]
>>> found = replay(CostRange(0.2, 0.8, 2), told)
>>> found.fronts, sorted(found.entered)
({1: (1,), 2: (2,)}, [1, 2])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from deeppruning.evolution.archive import Archive
from deeppruning.roles import ORIGINAL
from deeppruning.runs.records import Candidate

GUIDED = "guided"


@dataclass(frozen=True)
class CostRange:
    """Which shares of the original's cost an archive covers, and in how many bins."""

    low: float = 0.15
    high: float = 0.85
    bins: int = 16


@dataclass(frozen=True)
class Told:
    """What a strategy learns of one candidate; one that diverged or failed has neither cost nor score."""

    id: int
    generation: int
    cost: float | None
    judged: float | None
    operator: str = ""
    parents: tuple[int, ...] = ()

    @classmethod
    def of(cls, candidate: Candidate) -> Told:
        """The same of a candidate that has been evaluated."""
        known = candidate.known
        judged = None if known.error is None else known.judged
        return cls(
            candidate.id, candidate.generation, known.cost, judged, candidate.operator, candidate.parents
        )


@dataclass(frozen=True)
class Replay:
    """The archive as it is now, and what it was: ids from the cheapest to the costliest by generation."""

    archive: Archive[int]
    fronts: Mapping[int, tuple[int, ...]]
    entered: frozenset[int]

    @property
    def front(self) -> tuple[int, ...]:
        """The ids it holds now."""
        return tuple(self.archive)


@dataclass(frozen=True)
class Provenance:
    """What came of the candidates that have one origin: tried, entered the archive, in it now."""

    name: str
    tried: int
    entered: int
    held: int


def cost_range(search: Mapping[str, Any]) -> CostRange | None:
    """The range in a run's search options; None for a strategy without archive, as all older runs have."""
    if search.get("strategy") != GUIDED:
        return None
    usual = CostRange()
    return CostRange(
        search.get("low", usual.low), search.get("high", usual.high), search.get("bins", usual.bins)
    )


def replay(within: CostRange, told: Iterable[Told]) -> Replay:
    """The archive after all that was told, which may stop in the midst of a generation."""
    listed = sorted(told, key=lambda one: one.id)
    archive: Archive[int] = Archive(low=within.low, high=within.high, bins=within.bins)
    whole = _whole(listed)
    fronts: dict[int, tuple[int, ...]] = {}
    entered = set()
    for generation, group in groupby(listed, key=lambda one: one.generation):
        for one in group:
            if whole is None or one.cost is None or one.judged is None or one.operator == ORIGINAL:
                continue
            if archive.add(one.id, score=one.judged, share=one.cost / whole):
                entered.add(one.id)
        fronts[generation] = tuple(archive)
    return Replay(archive, fronts, frozenset(entered))


def _whole(told: Sequence[Told]) -> float | None:
    """The original's cost; should it have failed, the costliest beside it stands in, as in the search."""
    if not told or told[0].id != 0:
        return None
    costs = [one.cost for one in told if one.generation == told[0].generation and one.cost is not None]
    whole = told[0].cost if told[0].cost is not None else max(costs, default=0.0)
    return whole if whole > 0 else None


def sources(told: Iterable[Told], found: Replay) -> list[Provenance]:
    """What came of each operator, the most successful first, and then of each kind of seed."""
    members: dict[tuple[bool, str], list[int]] = {}
    for one in told:
        if one.operator not in ("", ORIGINAL):
            # Seeds of one order differ in how many units they leave out, which stands behind a comma.
            name = one.operator if one.parents else f"seed: {one.operator.partition(',')[0]}"
            members.setdefault((not one.parents, name), []).append(one.id)
    held = frozenset(found.front)
    rows = [
        (seed, Provenance(name, len(ids), len(found.entered.intersection(ids)), len(held.intersection(ids))))
        for (seed, name), ids in members.items()
    ]
    rows.sort(key=lambda row: (row[0], -row[1].entered / row[1].tried, row[1].name))
    return [source for _, source in rows]
