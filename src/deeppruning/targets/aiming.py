"""From limits to a search that spends its effort near them: its objective, its focus, its range of cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import SearchConfig
from deeppruning.errors import InputError
from deeppruning.evolution.space import Space
from deeppruning.genome import Population
from deeppruning.graph import ChannelGraph
from deeppruning.limits import COUNTED, Limits
from deeppruning.objectives import as_objective
from deeppruning.searching.candidate import Context

if TYPE_CHECKING:
    from deeppruning.jobs.job import Job

BELOW = 0.8  # of the focus: where a search begins that is to come below its usual range
LATENCY = "latency"
LEAST, MOST = 0.001, 0.999  # shares that can be a focus

Price = Callable[[Population], NDArray[np.float64]]


def with_objective(search: SearchConfig, limits: Limits) -> SearchConfig:
    """The options with the objective that the limits are about; one other than the default stays as it is."""
    chosen = search.objective != SearchConfig().objective
    if chosen or limits.objective is None:
        return search
    return replace(search, objective=limits.objective)


def aimed(job: Job) -> Job:
    """The job with its search focused on the limits, where these bind and the strategy can."""
    if job.search.strategy != "guided" or job.target.objective is None:
        return job
    focus = find_focus(job.context, job.target)
    known = job.search.focus is not None and math.isclose(focus, job.search.focus, rel_tol=1e-9)
    if known or not LEAST <= focus <= MOST:
        return job
    return replace(job, search=with_focus(job.search, focus))


def refuse_unreachable(job: Job) -> None:
    """An error for a limit of what is counted that the network keeps by no cut: no search would find it."""
    limits, graph = job.target, job.context.graph
    graph = graph.rounded(1) if job.search.multiples is None else graph  # multiples nobody asked for give way
    whole, least = whole_figures(graph), ~graph.full_genome()
    for name, most in limits.most(whole).items():
        fewest = getattr(graph, name)(least)
        if most < fewest:
            share, unit = math.ceil(1000 * fewest / whole[name]) / 10, "bytes" if name == "size" else name
            raise InputError(
                f"target {name}={limits.to_table()[name]}: however it is cut, this network keeps {fewest:,} "
                f"of its {whole[name]:,} {unit}; ask for {name}={share:g}% or more"
            )


def with_focus(search: SearchConfig, focus: float) -> SearchConfig:
    """The options with a focus, which their range of cost includes and at which one of its bins ends."""
    low, high = min(search.low, max(BELOW * focus, LEAST)), max(search.high, focus)
    whole, below = math.log(high / low), math.log(focus / low)
    edge = min(max(round(search.bins * below / whole), 1), search.bins)
    part = edge / search.bins  # of the range, that is to end at the focus
    if part > 0.5:  # the end that moves less
        high = min(max(low * math.exp(below / part), focus), 1.0)
    else:
        low = max(math.exp((math.log(focus) - part * math.log(high)) / (1 - part)), LEAST)
    return replace(search, focus=focus, low=low, high=high)


def find_focus(context: Context, limits: Limits) -> float:
    """The share of the original's cost at which the limits are met."""
    graph, prices = context.graph, _prices(context)
    objective, used = as_objective(context.objective).name, used_share(context, limits)
    full = graph.full_genome()[None]
    if list(_most(context, limits)) == [objective]:
        return 1.0 / float(used(full)[0])
    plain = Space(
        graph.num_genes,
        [group.genes for group in graph.groups if group.prunable],
        scores={"any": np.zeros(graph.num_genes)},
        price=used,
        repair=graph.repair,
    )
    price: Price = prices.get(objective, graph.flops)
    within = plain.uniform(1.0, "any")[None]
    return float(price(within)[0] / price(full)[0])


def limited(space: Space, context: Context, limits: Limits) -> Space | None:
    """The space under the price that is 1 at the limits; None where nothing that can be told is limited."""
    return space.priced(used_share(context, limits)) if _most(context, limits) else None


def used_share(context: Context, limits: Limits) -> Price:
    """The largest part of any limit that genomes use up, of what is counted or planned."""
    most, prices = _most(context, limits), _prices(context)

    def used(genomes: Population) -> NDArray[np.float64]:
        shares = [prices[name](genomes) / limit for name, limit in most.items()]
        return np.asarray(np.max(shares, axis=0), dtype=np.float64)

    return used


def _most(context: Context, limits: Limits) -> dict[str, float]:
    """What may not be passed, of all that can be told of whole populations."""
    most = limits.most(whole_figures(context.graph))
    if limits.latency is not None and context.plan is not None:
        most[LATENCY] = limits.latency
    return most


def _prices(context: Context) -> dict[str, Price]:
    """What can be told of whole populations: what is counted, and a latency once there is a plan of it."""
    found: dict[str, Price] = {name: getattr(context.graph, name) for name in COUNTED}
    if context.plan is not None:
        found[LATENCY] = partial(context.plan, context.graph)
    return found


def whole_figures(graph: ChannelGraph) -> dict[str, int]:
    """What is counted, of the original."""
    full = graph.full_genome()
    return {name: getattr(graph, name)(full) for name in COUNTED}
