"""The archive of a guided search, rebuilt from its recorded candidates: which were added, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
class Replay:
    """The archive now, and after each generation: ids from the lowest to the highest cost."""

    archive: Archive[int]
    fronts: Mapping[int, tuple[int, ...]]
    entered: frozenset[int]

    @property
    def front(self) -> tuple[int, ...]:
        """The ids it holds now."""
        return tuple(self.archive)


@dataclass(frozen=True)
class Provenance:
    """The candidates of one origin: how many were tried, entered the archive, and are in it now."""

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


def replay(within: CostRange, candidates: Iterable[Candidate]) -> Replay:
    """The archive after these evaluated candidates; the last generation may be incomplete."""
    rows = sorted(candidates, key=lambda candidate: candidate.id)
    archive: Archive[int] = Archive(low=within.low, high=within.high, bins=within.bins)
    costs = {row.id: row.evaluated.objectives[1] for row in rows}
    if rows and rows[0].id == 0:
        archive.scale_by([costs[row.id] for row in rows if row.generation == rows[0].generation])
    fronts: dict[int, tuple[int, ...]] = {}
    entered = set()
    for row in rows:
        if archive.offer(row.id, operator=row.operator, score=row.evaluated.judged, cost=costs[row.id]):
            entered.add(row.id)
        fronts[row.generation] = tuple(archive)
    return Replay(archive, fronts, frozenset(entered))


def sources(candidates: Iterable[Candidate], history: Replay) -> list[Provenance]:
    """The success of each operator, the most successful first, and then of each kind of seed."""
    members: dict[tuple[bool, str], list[int]] = {}
    for row in candidates:
        if row.operator not in ("", ORIGINAL):
            # Seeds of one order differ in how many units they leave out, which is written after a comma.
            name = row.operator if row.parents else f"seed: {row.operator.partition(',')[0]}"
            members.setdefault((not row.parents, name), []).append(row.id)
    entered, held = history.entered, frozenset(history.front)
    rows = [
        (seed, Provenance(name, len(ids), len(entered.intersection(ids)), len(held.intersection(ids))))
        for (seed, name), ids in members.items()
    ]
    rows.sort(key=lambda row: (row[0], -row[1].entered / row[1].tried, row[1].name))
    return [source for _, source in rows]
