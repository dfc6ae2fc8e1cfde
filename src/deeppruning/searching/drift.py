"""How far a thin network's outputs have drifted from the original's: no labels, any nested tensors.

>>> drift(torch.tensor([[2.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
Drift(error=0.0, score=0.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from deeppruning.errors import Diverged, InputError
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.training.distillation import distillation_loss


@dataclass(frozen=True)
class Drift:
    """Between the outputs of two networks for the same inputs.

    Class scores (inputs, classes): the share of other answers, and the divergence of the probabilities.
    Anything else: for both the squared distance over the variance of the original's outputs.
    """

    error: float
    score: float


def drift(wanted: Any, found: Any) -> Drift:
    """How far `found` is from `wanted`; raises Diverged where it is not finite."""
    pairs = _pairs(wanted, found)
    if not all(bool(torch.isfinite(new).all()) for _, new in pairs):
        raise Diverged("outputs of the network are not finite")
    if len(pairs) == 1 and pairs[0][0].dim() == 2 and pairs[0][0].shape[1] > 1:
        old, new = pairs[0]
        other = int((old.argmax(1) != new.argmax(1)).sum())
        return Drift(other / max(len(old), 1), float(distillation_loss(new, old, 1.0)))
    relative = [_relative(old, new) for old, new in pairs]
    mean = sum(relative) / len(relative)
    return Drift(mean, mean)


def _pairs(wanted: Any, found: Any) -> list[tuple[Tensor, Tensor]]:
    """The floating-point tensors of both outputs, one beside the other."""
    old, new = map(tensors_in, (wanted, found))
    if [leaf.shape for leaf in old] != [leaf.shape for leaf in new]:
        raise Diverged("the outputs of the thin network have other shapes than the original's")
    pairs = [(a.float(), b.float()) for a, b in zip(old, new, strict=True) if a.is_floating_point()]
    if not pairs:
        raise InputError("the network gives no tensors of numbers: there is nothing to hold against another")
    return pairs


def _relative(old: Tensor, new: Tensor) -> float:
    spread = (old - old.mean(0, keepdim=True)).square().mean() if len(old) > 1 else old.square().mean()
    return float((old - new).square().mean() / spread.clamp_min(1e-12))
