"""What a layer should answer at some places: the original's answers, and how far they may be missed for free.

What a layer is added to may have lost something in the thin network: the layer is asked to make up for it.
An activation that alone reads the answers (or the sum) hides values beyond its limits: behind a ReLU, where
the original is below zero, every answer that keeps it there is as good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.refitting.readers import Gate


@dataclass(frozen=True)
class Goal:
    """Targets (inputs, places, filters), and the least and greatest answers that are as good, if any are."""

    targets: Tensor
    within: tuple[Tensor, ...] = ()
    corrected: bool = False  # whether the targets make up for what others lack


def find_goal(
    answers: Tensor,
    norm: nn.Module | None,
    gate: Gate | None,
    *,
    missing: Tensor | None = None,
    beside: Tensor | None = None,
) -> Goal:
    """The goal of a layer with these answers in the original, read by a norm, a sum or a gate in this order.

    `beside` is what the answers are added to in the original, `missing` what the thin network lacks of it.
    The norm is still as in the original.

    >>> answers, beside = torch.tensor([[[2.0]], [[-3.0]]]), torch.tensor([[[0.5]], [[1.0]]])
    >>> goal = find_goal(answers, None, Gate(0.0), missing=torch.full((2, 1, 1), 0.5), beside=beside)
    >>> goal.targets.flatten().tolist(), [bound.flatten().tolist() for bound in goal.within]
    ([2.5, -2.5], [[2.5, -inf], [2.5, -0.5]])
    """
    if norm is not None and (not isinstance(norm, _BatchNorm) or norm.running_mean is None):
        return Goal(answers)
    slope, shift, undone = _norm_as_affine(norm, answers)
    corrected = missing is not None
    targets = answers + missing * undone if missing is not None else answers
    if gate is None or (beside is not None and not corrected):
        return Goal(targets, corrected=corrected)
    read = answers * slope + shift  # by the gate
    read = read if beside is None else read + beside
    return Goal(targets, _goal_intervals(targets, read, undone, gate), corrected)


def _goal_intervals(targets: Tensor, read: Tensor, undone: Tensor, gate: Gate) -> tuple[Tensor, Tensor]:
    """The least and greatest answers with which the gate answers as in the original."""
    least, greatest = targets, targets
    # Beyond a limit, the answer may move away from it without end; a norm may turn the direction round.
    for limit, beyond, sign in ((gate.low, read <= gate.low, -1.0), (gate.high, read >= gate.high, 1.0)):
        if math.isinf(limit):
            continue
        edge = targets - (read - limit) * undone
        up, down = beyond & (sign * undone > 0), beyond & (sign * undone < 0)
        least = torch.where(up, edge, torch.where(down, -math.inf, least))
        greatest = torch.where(up, math.inf, torch.where(down, edge, greatest))
    return least, greatest


def _norm_as_affine(norm: _BatchNorm | None, answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A norm's factor and offset, and the factor that turns a change behind it into one before it.

    The last is zero for channels that the norm scales to nearly zero.
    """
    if norm is None:
        return answers.new_ones(1), answers.new_zeros(1), answers.new_ones(1)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    width = (norm.running_var + norm.eps).sqrt()
    scale = torch.ones_like(width) if norm.weight is None else norm.weight
    scaled = scale.abs() > 1e-3 * scale.abs().max()
    undone = torch.where(scaled, width / torch.where(scaled, scale, 1.0), 0.0)
    shift = -norm.running_mean * scale / width
    return scale / width, shift if norm.bias is None else shift + norm.bias, undone
