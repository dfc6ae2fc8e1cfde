"""From limits and this machine to the search that is run: objective, widths, latency plan and focus.

Each function takes the graph, the options and the limits and returns what it decides; `settle` puts it
together in the one order that works: a latency is planned for the widths, a focus found by the plan.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeppruning.config import SearchConfig
from deeppruning.errors import DAMAGE, InputError, RunError
from deeppruning.evolution import Space
from deeppruning.genome import Population
from deeppruning.graph import ChannelGraph
from deeppruning.latency import Conditions, LatencyPlan
from deeppruning.latency.multiples import find_multiples
from deeppruning.latency.plan import plan_latency
from deeppruning.limits import COUNTED, Limits
from deeppruning.objectives import Latency, Objective
from deeppruning.runs import History, facts

BELOW = 0.8  # of the focus: where a search begins that has to go below its usual range
LATENCY = "latency"
LEAST, MOST = 0.001, 0.999  # shares that can be a focus
WORTH_MEASURING = (16, 8)  # multiples; narrower networks keep what the graph chooses
FREE = 0.5  # share of the genes that must be in layers of at least two multiples
NEARLY = 1.25  # times the lowest cost at any width: low enough for multiples
CLOSE = 0.95  # of a limit, which multiples must be able to reach
WITHOUT = (0.0, 0.25, 0.5)  # of the removable branches

Price = Callable[[Population], NDArray[np.float64]]


class Settled(NamedTuple):
    """A search as it is run."""

    graph: ChannelGraph
    search: SearchConfig
    objective: Objective
    plan: LatencyPlan | None = None
    multiples: Mapping[str, int] | None = None  # measured to be fast, by runtime


def settle(
    graph: ChannelGraph,
    search: SearchConfig,
    objective: Objective,
    limits: Limits,
    example_input: Any,
    device: str,
    history: History | None,
) -> Settled:
    """Decide what the options leave open; a run that has a history keeps its own options and plan."""
    multiples = None
    if history is None:
        round_to, multiples = fast_widths(graph, search, limits, device)
        if round_to != search.round_to:
            graph, search = graph.rounded(round_to), replace(search, round_to=round_to)
    plan = None
    if limits.latency is not None or isinstance(objective, Latency):
        plan = _latency_plan(graph, example_input, Conditions.of(search, device), history)
        objective = Latency(plan) if isinstance(objective, Latency) else objective
    if history is None and search.strategy == "guided" and limits.objective is not None:
        focus = find_focus(graph, objective.name, limits, plan)
        same = search.focus is not None and math.isclose(focus, search.focus, rel_tol=1e-9)
        search = with_focus(search, focus) if LEAST <= focus <= MOST and not same else search
    return Settled(graph, search, objective, plan, multiples)


def _latency_plan(
    graph: ChannelGraph, example_input: Any, conditions: Conditions, history: History | None
) -> LatencyPlan | None:
    """The plan that a run recorded, or a new one before its first evaluation.

    Another measurement gives another plan, so a resumed run keeps its own.
    """
    table = None if history is None else history.get_fact(facts.LATENCY_PLAN)
    if history is not None and table is not None:
        try:
            return LatencyPlan.from_table(table)
        except DAMAGE as error:
            raise RunError(
                f"{history.path}: its latency plan is damaged ({error}); start a new run"
            ) from error
    if history is not None and history.evaluations():
        return None  # nothing is searched any more
    return plan_latency(graph, example_input, conditions)


def with_objective(search: SearchConfig, limits: Limits) -> SearchConfig:
    """The options with the objective that the limits are about; one other than the default stays as it is."""
    chosen = search.objective != SearchConfig().objective
    if chosen or limits.objective is None:
        return search
    return replace(search, objective=limits.objective)


def refuse_unreachable(graph: ChannelGraph, limits: Limits) -> None:
    """Raise an error for a limit that no cut of the network meets."""
    whole, least = whole_figures(graph), ~graph.full_genome()
    for name, most in limits.most(whole).items():
        fewest = getattr(graph, name)(least)
        if most < fewest:
            share, unit = math.ceil(1000 * fewest / whole[name]) / 10, "bytes" if name == "size" else name
            raise InputError(
                f"target {name}={limits.to_table()[name]}: cut as far as possible, this network keeps "
                f"{fewest:,} of its {whole[name]:,} {unit}; ask for {name}={share:g}% or more"
            )


def with_focus(search: SearchConfig, focus: float) -> SearchConfig:
    """The options with a focus; it lies in their range of cost, at the end of one of its bins."""
    low, high = min(search.low, max(BELOW * focus, LEAST)), max(search.high, focus)
    whole, below = math.log(high / low), math.log(focus / low)
    edge = min(max(round(search.bins * below / whole), 1), search.bins)
    part = edge / search.bins  # of the range, which ends at the focus
    if part > 0.5:  # the end that moves less
        high = min(max(low * math.exp(below / part), focus), 1.0)
    else:
        low = max(math.exp((math.log(focus) - part * math.log(high)) / (1 - part)), LEAST)
    return replace(search, focus=focus, low=low, high=high)


def find_focus(graph: ChannelGraph, objective: str, limits: Limits, plan: LatencyPlan | None) -> float:
    """The share of the original's cost at which the limits are met."""
    used = within(graph, limits, plan)
    assert used is not None
    full = graph.full_genome()[None]
    if list(_computable_limits(graph, limits, plan)) == [objective]:
        return 1.0 / float(used(full)[0])
    price: Price = _computable_prices(graph, plan).get(objective, graph.flops)
    thin = _plain_space(graph, used).uniform(1.0, "any")[None]
    return float(price(thin)[0] / price(full)[0])


def within(graph: ChannelGraph, limits: Limits, plan: LatencyPlan | None) -> Price | None:
    """The largest share of any limit that genomes use, 1 at the limit; None without a limit that is counted.

    A latency counts where it is planned.
    """
    most, prices = _computable_limits(graph, limits, plan), _computable_prices(graph, plan)

    def used(genomes: Population) -> NDArray[np.float64]:
        shares = [prices[name](genomes) / limit for name, limit in most.items()]
        return np.asarray(np.max(shares, axis=0), dtype=np.float64)

    return used if most else None


def _computable_limits(graph: ChannelGraph, limits: Limits, plan: LatencyPlan | None) -> dict[str, float]:
    """The limits on what can be computed for whole populations."""
    most = limits.most(whole_figures(graph))
    if limits.latency is not None and plan is not None:
        most[LATENCY] = limits.latency
    return most


def _computable_prices(graph: ChannelGraph, plan: LatencyPlan | None) -> dict[str, Price]:
    """What can be computed for whole populations: the counts, and a latency once it is planned."""
    prices: dict[str, Price] = {name: getattr(graph, name) for name in COUNTED}
    if plan is not None:
        prices[LATENCY] = partial(plan, graph)
    return prices


def whole_figures(graph: ChannelGraph) -> dict[str, int]:
    """The counts of the original."""
    full = graph.full_genome()
    return {name: getattr(graph, name)(full) for name in COUNTED}


def fast_widths(
    graph: ChannelGraph, search: SearchConfig, limits: Limits, device: str
) -> tuple[int | None, Mapping[str, int] | None]:
    """The multiple of filters that layers keep, and the measurements of this machine where they decided.

    Explicit options and the paper's search stay as they are, and so does a network too narrow for multiples,
    unless a count is limited: then it takes any width, to come near the limit.
    """
    if search.multiples is not None:
        return search.round_to, None
    room = next((size for size in WORTH_MEASURING if _has_room(graph, size, search.low, limits)), None)
    if room is None:
        counted = any(getattr(limits, name) is not None for name in COUNTED)
        return (1 if counted else None), None
    measured = find_multiples(search.latency_threads, device)
    return min(room, max(measured.values())), measured


def _has_room(graph: ChannelGraph, multiple: int, low: float, limits: Limits) -> bool:
    """Whether most layers can be cut in this multiple, and the network as far as the search goes."""
    rounded, any_width = graph.rounded(multiple), graph.rounded(1)
    free = sum(len(group.genes) for group in rounded.groups if len(group.genes) >= 2 * group.multiple)
    if free < FREE * rounded.num_genes:
        return False
    if _least_flops_share(rounded) > max(low, NEARLY * _least_flops_share(any_width)):
        return False
    return _comes_near(rounded, limits) or not _comes_near(any_width, limits)


def _least_flops_share(graph: ChannelGraph) -> float:
    """The smallest share of the FLOPs that a cut can leave."""
    full = graph.full_genome()
    return float(graph.flops(~full) / graph.flops(full))


def _comes_near(graph: ChannelGraph, limits: Limits) -> bool:
    """Whether a cut can use nearly all that limits on counts allow; true where there is none."""
    used = within(graph, limits, None)
    if used is None:
        return True
    groups = [group for group in graph.groups if group.prunable]
    space = _plain_space(graph, used, multiple=[group.multiple for group in groups])
    units = [number for number, group in enumerate(groups) if group.removable]
    for part in WITHOUT:
        thin = space.uniform(1.0, "any", units[: round(part * len(units))])
        if CLOSE <= space.price(space.fill(thin, 1.0, "any")[None])[0] <= 1.0:
            return True
    return False


def _plain_space(graph: ChannelGraph, price: Price, **options: Any) -> Space:
    """The widths of a network without any order among its filters."""
    return Space(
        graph.num_genes,
        [group.genes for group in graph.groups if group.prunable],
        scores={"any": np.zeros(graph.num_genes)},
        price=price,
        repair=graph.repair,
        **options,
    )


def widths_line(round_to: int | None, multiples: Mapping[str, int] | None) -> str:
    """What widths a search varies, for people; empty where the options said so.

    >>> widths_line(8, {"torch 2.13.0": 8, "onnxruntime 1.23.2": 4})
    'widths in multiples of 8, measured to be fast (torch 2.13.0: 8, onnxruntime 1.23.2: 4)'
    """
    if not multiples:
        return ""
    measured = ", ".join(f"{runtime}: {multiple}" for runtime, multiple in multiples.items())
    why = "measured to be fast" if round_to in multiples.values() else "this network is too narrow for more"
    return f"widths in multiples of {round_to}, {why} ({measured})"
