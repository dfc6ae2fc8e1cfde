"""From limits to a search that spends its effort near them: its objective, its focus, its range of cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import SearchConfig
from deeppruning.evolution.space import Space
from deeppruning.genome import Genome, Population
from deeppruning.graph import ChannelGraph
from deeppruning.limits import COUNTED, Limits
from deeppruning.objectives import as_objective
from deeppruning.objectives.latency import measure_latency
from deeppruning.pruning.candidate import Context
from deeppruning.system.device import this_or_processor
from deeppruning.system.threads import torch_threads

if TYPE_CHECKING:
    from deeppruning.pruning.job import Job

BELOW = 0.8  # of the focus: where a search begins that is to come below its usual range
MEASURED = 3  # times
LEAST, MOST = 0.001, 0.999  # shares that can be a focus


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
    focus = find_focus(job.context, job.search, job.target)
    known = job.search.focus is not None and math.isclose(focus, job.search.focus, rel_tol=1e-9)
    if known or not LEAST <= focus <= MOST:
        return job
    return replace(job, search=with_focus(job.search, focus))


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


def find_focus(context: Context, search: SearchConfig, limits: Limits) -> float:
    """The share of the original's cost at which the limits are met; measured for a latency."""
    if limits.latency is not None:
        full = context.graph.full_genome()
        return limits.latency / measured_latency(context, full, search.threads)
    graph = context.graph
    whole = whole_figures(graph)
    share = {name: most / whole[name] for name, most in limits.most(whole).items()}
    objective = as_objective(context.objective).name
    if list(share) == [objective]:
        return share[objective]
    price = getattr(graph, objective if objective in COUNTED else COUNTED[0])
    plain = Space(
        graph.num_genes,
        [group.genes for group in graph.groups if group.prunable],
        scores={"any": np.zeros(graph.num_genes)},
        price=used_share(graph, limits),
        repair=graph.repair,
    )
    return float(price(plain.uniform(1.0, "any")) / price(graph.full_genome()))


def limited(space: Space, graph: ChannelGraph, limits: Limits) -> Space | None:
    """The space under the price that is 1 at the limits; None where nothing that is counted is limited."""
    return space.priced(used_share(graph, limits)) if limits.most(whole_figures(graph)) else None


def used_share(graph: ChannelGraph, limits: Limits) -> Callable[[Population], NDArray[np.float64]]:
    """The largest part of any limit that genomes use up, of what is counted."""
    most = limits.most(whole_figures(graph))

    def used(genomes: Population) -> NDArray[np.float64]:
        shares = [getattr(graph, name)(genomes) / limit for name, limit in most.items()]
        return np.asarray(np.max(shares, axis=0), dtype=np.float64)

    return used


def whole_figures(graph: ChannelGraph) -> dict[str, int]:
    """What is counted, of the original."""
    full = graph.full_genome()
    return {name: getattr(graph, name)(full) for name in COUNTED}


def measured_latency(context: Context, genome: Genome, threads: int) -> float:
    """Seconds of a forward pass on the example input, measured here and now with none of ours beside it.

    The least of some medians: what else the machine does only adds to it.
    """
    network = context.graph.prune(genome).to(this_or_processor(context.device))
    with torch_threads(threads):
        return min(measure_latency(network, context.example_input) for _ in range(MEASURED))
