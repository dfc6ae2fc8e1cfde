"""The multiple of filters that layers keep: what this machine is fast at, where nobody asked for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from deeppruning.evolution.space import Space
from deeppruning.graph import ChannelGraph
from deeppruning.latency.multiples import find_multiples
from deeppruning.limits import COUNTED
from deeppruning.targets.aiming import limited

if TYPE_CHECKING:
    from deeppruning.jobs.job import Job

WORTH_MEASURING = (16, 8)  # narrower networks keep what `multiple_for` says
FREE = 0.5  # of all genes that are to lie in layers with two multiples or more
NEARLY = 1.25  # times the least cost of any width, which is low enough where multiples come to it

CLOSE = 0.95  # of a limit, which multiples are to come to
WITHOUT = (0.0, 0.25, 0.5)  # of the branches that can go


def with_fast_widths(job: Job) -> Job:
    """The job with the multiple that this machine is fast at, which its options name from here on.

    Explicit options and the paper's search stay as they are, and so does a network too narrow for multiples,
    unless a count is limited: then it takes any width, to come near the limit.
    """
    if job.search.multiples is not None:
        return job
    room = next((multiple for multiple in WORTH_MEASURING if _has_room(job, multiple)), None)
    if room is None:
        return _rounded(job, 1) if any(getattr(job.target, name) is not None for name in COUNTED) else job
    measured = find_multiples(job.search.latency_threads, job.context.device)
    chosen = min(room, max(measured.values()))
    return replace(_rounded(job, chosen), measured=measured)


def _rounded(job: Job, multiple: int) -> Job:
    context = replace(job.context, graph=job.context.graph.rounded(multiple))
    return replace(job, search=replace(job.search, round_to=multiple), context=context)


def _has_room(job: Job, multiple: int) -> bool:
    """Whether most layers can be cut in this multiple, and the network as far as the search is to go."""
    graph = job.context.graph.rounded(multiple)
    free = sum(len(group.genes) for group in graph.groups if len(group.genes) >= 2 * group.multiple)
    if free < FREE * graph.num_genes:
        return False
    any_width = job.context.graph.rounded(1)
    if _least(graph) > max(job.search.low, NEARLY * _least(any_width)):
        return False
    return _comes_near(job, graph) or not _comes_near(job, any_width)


def _least(graph: ChannelGraph) -> float:
    """The smallest share of the FLOPs that a cut can leave."""
    full = graph.full_genome()
    return float(graph.flops(~full) / graph.flops(full))


def _comes_near(job: Job, graph: ChannelGraph) -> bool:
    """Whether a cut can use up nearly all that limits of a count leave; true where there is none."""
    context = replace(job.context, graph=graph)
    groups = [group for group in graph.groups if group.prunable]
    plain = Space(
        graph.num_genes,
        [group.genes for group in groups],
        scores={"any": np.zeros(graph.num_genes)},
        price=graph.flops,
        repair=graph.repair,
        multiple=[group.multiple for group in groups],
    )
    space = limited(plain, context, job.target)
    if space is None:
        return True
    units = [number for number, group in enumerate(groups) if group.removable]
    for part in WITHOUT:
        thin = space.uniform(1.0, "any", units[: round(part * len(units))])
        if CLOSE <= space.price(space.fill(thin, 1.0, "any")[None])[0] <= 1.0:
            return True
    return False


def widths_line(round_to: int | None, measured: Mapping[str, int] | None) -> str:
    """What widths a search varies, for people; empty where its options said so.

    >>> widths_line(8, {"torch 2.13.0": 8, "onnxruntime 1.23.2": 4})
    'widths in multiples of 8, measured to be fast (torch 2.13.0: 8, onnxruntime 1.23.2: 4)'
    """
    if not measured:
        return ""
    told = ", ".join(f"{runtime}: {multiple}" for runtime, multiple in measured.items())
    why = "measured to be fast" if round_to in measured.values() else "no more for so narrow a network"
    return f"widths in multiples of {round_to}, {why} ({told})"
