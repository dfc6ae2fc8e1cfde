"""Which candidate of a search is the best within limits, and its figures for each limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deeppruning.amounts import percent
from deeppruning.errors import RunError
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.limits import COUNTED, Limits
from deeppruning.objectives import as_objective
from deeppruning.runs import Candidate
from deeppruning.searching.candidate import Context
from deeppruning.searching.proving import Proofs
from deeppruning.targets.aiming import whole_figures

SLACK = 1.1  # times the limit: a candidate that was planned to be slower is not measured
TRIES = 4  # measurements above a limit until they are believed: machines have slow seconds


@dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate within limits of cost or, where there is none, the nearest to them."""

    candidate: Candidate
    figures: Mapping[str, float]  # of what is limited
    met: bool


@dataclass(frozen=True, eq=False)
class CostMeter:
    """Counts or measures the costs of candidates on this machine."""

    context: Context
    conditions: Conditions
    proofs: Proofs

    @cached_property
    def whole(self) -> dict[str, int]:
        """The counts of the original."""
        return whole_figures(self.context.graph)

    def counts(self, candidate: Candidate) -> dict[str, int]:
        """What follows from the genome."""
        return {name: getattr(self.context.graph, name)(candidate.genome) for name in COUNTED}

    def seconds(self, candidate: Candidate, most: float) -> float:
        """The latency, measured now; repeated where it is above `most`."""
        fastest = math.inf
        for _ in range(TRIES):
            network = self.context.graph.prune(candidate.genome)
            (seconds,) = measure_networks([network], self.context.example_input, self.conditions)
            fastest = min(fastest, seconds)
            if fastest <= most:
                break
        return fastest

    @property
    def searched_latency(self) -> bool:
        """Whether latency was the objective of the search."""
        return as_objective(self.context.objective).name == "latency"


def choose(candidates: Iterable[Candidate], limits: Limits, meter: CostMeter) -> Choice:
    """The best by the search's own score, of all that keep the limits of cost and whose cut is proven."""
    left = [
        candidate for candidate in thin_candidates(candidates) if candidate.id not in meter.proofs.refused
    ]
    while left:
        choice = best_within(left, limits, meter)
        if not choice.met or meter.proofs.hold(choice.candidate):
            return choice
        left.remove(choice.candidate)
    raise RunError(meter.proofs.why_none())


def best_within(candidates: Sequence[Candidate], limits: Limits, meter: CostMeter) -> Choice:
    """The best of these, proven or not."""
    most = limits.most(meter.whole)
    counts = {candidate.id: meter.counts(candidate) for candidate in candidates}
    used = {id_: max((have[name] / most[name] for name in most), default=0.0) for id_, have in counts.items()}
    within = sorted((each for each in candidates if used[each.id] <= 1.0), key=_order_of_choice)
    pool = within or [min(candidates, key=lambda each: (used[each.id], *_order_of_choice(each)))]
    best, figures = pool[0], {}
    if limits.latency is not None:
        best, figures["latency"] = _fast_enough(pool, limits.latency, meter)
    met = bool(within) and (limits.latency is None or figures["latency"] <= limits.latency)
    return Choice(best, {**{name: counts[best.id][name] for name in most}, **figures}, met)


def _fast_enough(pool: Sequence[Candidate], most: float, meter: CostMeter) -> tuple[Candidate, float]:
    """The best one with a measured latency within the limit, or the fastest, with its seconds."""
    if meter.searched_latency:
        fast = [candidate for candidate in pool if candidate.evaluated.objectives[1] <= SLACK * most]
        pool = fast or [min(pool, key=lambda candidate: candidate.evaluated.objectives[1])]
    else:  # a candidate that is worse and costlier than another is hardly faster
        pool = pareto_front(pool, key="flops")
    measured: list[tuple[Candidate, float]] = []
    for candidate in pool:
        measured.append((candidate, meter.seconds(candidate, most)))
        if measured[-1][1] <= most:
            return measured[-1]
    return min(measured, key=lambda pair: pair[1])


def thin_candidates(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that have an error and are smaller than the original, without duplicates."""
    thin: dict[bytes, Candidate] = {}
    for candidate in candidates:
        evaluated = candidate.evaluation is not None and candidate.train_error is not None
        if evaluated and not candidate.genome.all():
            thin.setdefault(candidate.genome.tobytes(), candidate)
    if not thin:
        raise RunError("the search has no candidate with an error that is thinner than the original")
    return list(thin.values())


def pareto_front(candidates: Iterable[Candidate], key: str = "cost") -> list[Candidate]:
    """The Pareto front by score and cost, from the costliest to the cheapest."""
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda each: (getattr(each, key), *_order_of_choice(each))):
        if not front or candidate.evaluated.judged < front[-1].evaluated.judged:
            front.append(candidate)
    return front[::-1]


def _order_of_choice(candidate: Candidate) -> tuple[float, float, int]:
    return candidate.evaluated.judged, candidate.evaluated.objectives[1], candidate.id


def describe(limits: Limits, figures: Mapping[str, float], whole: Mapping[str, int]) -> str:
    """The figures of a network next to their limits.

    >>> describe(Limits.of("flops=40%,latency=5ms"), {"flops": 398, "latency": 0.0047}, {"flops": 1000})
    'flops 39.8 % (limit: 40%), latency 4.70 ms (limit: 5ms)'
    """
    return ", ".join(
        f"{name} {_figure_in_words(name, getattr(limits, name), figures[name], whole)} (limit: {limit})"
        for name, limit in limits.to_table().items()
        if name in figures
    )


def _figure_in_words(name: str, limit: float | None, figure: float, whole: Mapping[str, int]) -> str:
    if name == "latency":
        return f"{1000 * figure:.2f} ms"
    if name == "error":
        return percent(figure)
    if limit is not None and limit <= 1:
        return percent(figure / whole[name], 1)
    return f"{figure:,.0f}{' bytes' if name == 'size' else ''}"
