"""Which of a search's candidates is the answer to limits, and what it has of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deeppruning.errors import RunError
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.limits import COUNTED, Limits
from deeppruning.objectives import as_objective
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import Context
from deeppruning.searching.proving import Proofs
from deeppruning.targets.aiming import whole_figures

SLACK = 1.1  # times the limit: a candidate that was to be slower than that is not measured
TRIES = 4  # measurements above a limit until they are believed: machines have slow seconds


@dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate within limits of cost or, where there is none, the nearest to them."""

    candidate: Candidate
    figures: Mapping[str, float]  # of what is limited
    met: bool


@dataclass(frozen=True, eq=False)
class Yardstick:
    """Tells what candidates have of that which can be limited: counted, or measured on this machine."""

    context: Context
    conditions: Conditions
    proofs: Proofs

    @cached_property
    def whole(self) -> dict[str, int]:
        """What the original has."""
        return whole_figures(self.context.graph)

    def counts(self, candidate: Candidate) -> dict[str, int]:
        """What follows from the genome; a history of any age holds genomes."""
        return {name: getattr(self.context.graph, name)(candidate.genome) for name in COUNTED}

    def seconds(self, candidate: Candidate, most: float) -> float:
        """The latency, measured here and now with none of ours beside it; again where it is above `most`."""
        found = math.inf
        for _ in range(TRIES):
            network = self.context.graph.prune(candidate.genome)
            (seconds,) = measure_networks([network], self.context.example_input, self.conditions)
            found = min(found, seconds)
            if found <= most:
                break
        return found

    @property
    def searched_latency(self) -> bool:
        """Whether the search went by it."""
        return as_objective(self.context.objective).name == "latency"


def choose(candidates: Iterable[Candidate], limits: Limits, yardstick: Yardstick) -> Choice:
    """The best by what the search selects on, of all that keep the limits of cost and whose cut is proven."""
    left = [one for one in thin_ones(candidates) if one.id not in yardstick.proofs.refused]
    while left:
        choice = best_within(left, limits, yardstick)
        if not choice.met or yardstick.proofs.hold(choice.candidate):
            return choice
        left.remove(choice.candidate)
    raise RunError(yardstick.proofs.why_none())


def best_within(thin: Sequence[Candidate], limits: Limits, yardstick: Yardstick) -> Choice:
    """The best of these, proven or not."""
    most = limits.most(yardstick.whole)
    counts = {one.id: yardstick.counts(one) for one in thin}
    used = {id_: max((have[name] / most[name] for name in most), default=0.0) for id_, have in counts.items()}
    within = sorted((one for one in thin if used[one.id] <= 1.0), key=_best_first)
    pool = within or [min(thin, key=lambda one: (used[one.id], *_best_first(one)))]
    found, figures = pool[0], {}
    if limits.latency is not None:
        found, seconds = _timed(pool, limits.latency, yardstick)
        figures["latency"] = seconds
    met = bool(within) and (limits.latency is None or figures["latency"] <= limits.latency)
    return Choice(found, {**{name: counts[found.id][name] for name in most}, **figures}, met)


def _timed(pool: Sequence[Candidate], most: float, yardstick: Yardstick) -> tuple[Candidate, float]:
    """The best that is measured to be quick enough, or the quickest, with its seconds."""
    if yardstick.searched_latency:
        quick = [one for one in pool if one.known.objectives[1] <= SLACK * most]
        pool = quick or [min(pool, key=lambda one: one.known.objectives[1])]
    else:  # one that is worse and costlier than another is hardly quicker
        pool = front_of(pool, key="flops")
    measured: list[tuple[Candidate, float]] = []
    for one in pool:
        measured.append((one, yardstick.seconds(one, most)))
        if measured[-1][1] <= most:
            return measured[-1]
    return min(measured, key=lambda pair: pair[1])


def thin_ones(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that have an error and are not the original, equal ones once."""
    found: dict[bytes, Candidate] = {}
    for one in candidates:
        if one.evaluation is not None and one.train_error is not None and not one.genome.all():
            found.setdefault(one.genome.tobytes(), one)
    if not found:
        raise RunError("the search has no candidate with an error that is thinner than the original")
    return list(found.values())


def front_of(candidates: Iterable[Candidate], key: str = "cost") -> list[Candidate]:
    """Those than which no cheaper one is as good, from the costliest to the cheapest."""
    front: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (getattr(one, key), *_best_first(one))):
        if not front or one.known.judged < front[-1].known.judged:
            front.append(one)
    return front[::-1]


def _best_first(one: Candidate) -> tuple[float, float, int]:
    return one.known.judged, one.known.objectives[1], one.id


def describe(limits: Limits, figures: Mapping[str, float], whole: Mapping[str, int]) -> str:
    """What a network has of each limit that a figure is known for.

    >>> describe(Limits.of("flops=40%,latency=5ms"), {"flops": 398, "latency": 0.0047}, {"flops": 1000})
    'flops 39.8 % (asked: at most 40%), latency 4.70 ms (asked: at most 5ms)'
    """
    asked = limits.to_table()
    return ", ".join(
        f"{name} {_shown(name, getattr(limits, name), figures[name], whole)} (asked: at most {asked[name]})"
        for name in asked
        if name in figures
    )


def _shown(name: str, limit: float | None, figure: float, whole: Mapping[str, int]) -> str:
    if name == "latency":
        return f"{1000 * figure:.2f} ms"
    if name == "error":
        return f"{100 * figure:.2f} %"
    if limit is not None and limit <= 1:
        return f"{100 * figure / whole[name]:.1f} %"
    return f"{figure:,.0f}{' bytes' if name == 'size' else ''}"
