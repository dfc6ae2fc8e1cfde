"""Refit a thin network: its layers are solved in one pass, and the plain cut is kept where it is better."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call, batch_size
from deeppruning.refitting.projections import projections_called
from deeppruning.refitting.reference import MEMORY, Reference
from deeppruning.refitting.sweep import Sweep

ROUNDING = 1e-5  # of the distance between outputs


@dataclass(frozen=True)
class Refitted:
    """A refitted network, and the layers that were left as cut, each with the reason."""

    model: nn.Module
    left: dict[str, str] = field(default_factory=dict)


def refit(
    graph: ChannelGraph, genome: Any, inputs: Any, *, ridge: float | None = None, memory: float = MEMORY / 1e9
) -> nn.Module:
    """Cut, then refit in closed form on a batch of inputs: no labels, no training, no randomness.

    The weights of every convolution and linear layer become the least-squares solution for the outputs of
    the original's remaining filters, given what the thin network's preceding layers produce; batch norms are
    adapted in the same pass. If the network's outputs end up further from the original's than those of the
    plain cut, the plain cut is returned. `memory` is what this may take beside the inputs, in GB: fewer
    inputs are used where not all have room.
    """
    if not isinstance(graph, ChannelGraph):
        raise InputError(
            f"graph must be a ChannelGraph, got {type(graph).__name__}; make one of the network: "
            "dp.refit(dp.ChannelGraph(model, example_input), genome, inputs)"
        )
    check_ridge(ridge)
    if not 0 < memory < math.inf:
        raise InputError(f"memory must be above 0 and finite, got {memory}; give it in GB, such as 8")
    reference = Reference.of(graph, inputs, memory=int(memory * 1e9), thorough=True)
    given = batch_size(as_call(inputs))
    if reference.count < given:
        warnings.warn(
            f"refitted on {reference.count:,} of {given:,} inputs: more have no room in {memory:g} GB; give "
            "refit a larger memory=",
            stacklevel=2,
        )
    if reference.count < reference.needed:
        warnings.warn(
            f"some layers have fewer equations than unknowns: give {reference.needed} inputs",
            stacklevel=2,
        )
    done = refit_with(reference, graph, genome, ridge=ridge)
    if done.left:
        listed = "; ".join(f"{name}: {reason}" for name, reason in done.left.items())
        warnings.warn(f"left as cut, not refitted: {listed}", stacklevel=2)
    return done.model


def refit_with(
    reference: Reference, graph: ChannelGraph, genome: Any, *, ridge: float | None = None
) -> Refitted:
    """The same with a reference that was recorded before, as a search does for all its candidates."""
    thin = graph.prune(genome).eval()
    return Refitted(thin, refit_in_place(reference, graph, genome, thin, ridge=ridge, compare=True))


def refit_in_place(
    reference: Reference,
    graph: ChannelGraph,
    genome: Any,
    thin: nn.Module,
    *,
    ridge: float | None = None,
    compare: bool = False,
) -> dict[str, str]:
    """Refit a network cut by `graph.prune(genome)`; returns the layers left as cut, with the reasons.

    It is moved to the device of the reference and stays there. With `compare` the plain cut is run as well,
    which takes up to half as long again, and is kept if its outputs are closer to the original's.
    """
    check_ridge(ridge)
    run = Sweep(reference, graph.recipe(genome), thin.eval().to(reference.device), ridge)
    before = [tensor.detach().clone() for tensor in _parameters_and_buffers(thin)] if compare else []
    with projections_called(reference.model), projections_called(thin):
        gap = reference.gap(thin) if compare else float("inf")
        reached = run.go()
    left = {**{k: v for k, v in reference.left.items() if k in run.layers}, **run.left}
    if compare and math.isfinite(gap) and not reached <= gap * (1 + ROUNDING):
        with torch.no_grad():
            for tensor, value in zip(_parameters_and_buffers(thin), before, strict=True):
                tensor.copy_(value)
        solved = run.layers & reference.layers.keys()
        return {**dict.fromkeys(sorted(solved), "the plain cut is closer to the original"), **left}
    return left


def _parameters_and_buffers(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def check_ridge(ridge: float | None) -> None:
    """Refuse a negative or infinite ridge."""
    if ridge is not None and not 0 <= ridge < float("inf"):
        raise InputError(f"ridge must be at least 0 and finite, got {ridge}")
