"""The archive of a guided search, rebuilt from its recorded candidates: who was added, and who is in it when.

>>> told = [Told(0, 1, 100, 0.1), Told(1, 1, 50.0, 0.3, "l1"), Told(2, 2, 52.0, 0.2, "drop", (1,))]
>>> history = replay(CostRange(0.2, 0.8, 2), told)
>>> history.fronts, sorted(history.entered)
({1: (1,), 2: (2,)}, [1, 2])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from deeppruning.config import SearchConfig
from deeppruning.evolution.archive import Archive
from deeppruning.roles import ORIGINAL
from deeppruning.runs.records import Candidate

GUIDED = "guided"


@dataclass(frozen=True)
class CostRange:
    """The shares of the original's cost that an archive covers, and its number of bins."""

    low: float
    high: float
    bins: int


@dataclass(frozen=True)
class Told:
    """What a strategy learns of one candidate; both figures are None for one that diverged or failed."""

    id: int
    generation: int
    cost: float | None
    judged: float | None
    operator: str = ""
    parents: tuple[int, ...] = ()

    @classmethod
    def of(cls, candidate: Candidate) -> Told:
        """What a strategy learned of a candidate that has been evaluated."""
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
    """The range in the search options of a run; None for a strategy without an archive."""
    if search.get("strategy") != GUIDED:
        return None
    return CostRange(
        search.get("low", SearchConfig.low),
        search.get("high", SearchConfig.high),
        search.get("bins", SearchConfig.bins),
    )


def replay(within: CostRange, told: Iterable[Told]) -> Replay:
    """The archive after these candidates, the last generation of which may be incomplete."""
    listed = sorted(told, key=lambda candidate: candidate.id)
    archive: Archive[int] = Archive(low=within.low, high=within.high, bins=within.bins)
    if listed and listed[0].id == 0:
        archive.scale_by([_number(row.cost) for row in listed if row.generation == listed[0].generation])
    fronts: dict[int, tuple[int, ...]] = {}
    entered = set()
    for generation, group in groupby(listed, key=lambda candidate: candidate.generation):
        for row in group:
            if archive.offer(
                row.id, operator=row.operator, score=_number(row.judged), cost=_number(row.cost)
            ):
                entered.add(row.id)
        fronts[generation] = tuple(archive)
    return Replay(archive, fronts, frozenset(entered))


def _number(figure: float | None) -> float:
    return math.nan if figure is None else figure


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
