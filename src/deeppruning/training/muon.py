"""Muon for kernels and matrices, Adam for everything else: learning rates that do not depend on the network.

Muon (Jordan et al., 2024) replaces the momentum of a matrix by the nearest orthogonal matrix, so that weak
directions of the gradient count as much as strong ones. Here a step changes each kernel by a fixed share of
its own norm: the same rate fits layers, networks and data of any scale.

>>> layer = nn.Linear(3, 3, bias=False)
>>> _ = nn.init.eye_(layer.weight)
>>> layer.weight.grad = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
>>> Muon(layer.parameters(), lr=0.1).step()
>>> round(float((layer.weight.detach() - torch.eye(3)).norm() / torch.eye(3).norm()), 4)
0.1
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM, DECAYS = 0.95, (0.9, 0.99)  # of Muon, and of Adam's two averages
ADAM_SHARE = 0.1  # of the rate, for biases and norms: Adam changes each of their numbers by about that much
STEPS = 5
LEAST = 1e-3  # of the norm of a kernel, as a share of that of an orthogonal one
# A quintic polynomial that pulls singular values towards 1, steep near 0; see Jordan et al.
_LINEAR, _CUBIC, _QUINTIC = 3.4445, -4.7750, 2.0315
_TINY = 1e-8


class Muon:
    """An optimizer: `lr` is the share of a kernel's norm by which one step changes it."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": lr}]  # as in torch.optim
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        for parameter in parameters:
            self.state[parameter] = {"momentum": torch.zeros_like(parameter)}
            if parameter.ndim < 2:
                self.state[parameter] |= {"square": torch.zeros_like(parameter), "steps": torch.zeros(())}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for parameter in self.state:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step by the gradients there are; a layer that was skipped keeps its weights."""
        lr = self.param_groups[0]["lr"]
        for parameter, state in self.state.items():
            if parameter.grad is None:
                continue
            if parameter.ndim > 1:
                _muon_step(parameter, parameter.grad, state["momentum"], lr)
            else:
                _adam_step(parameter, parameter.grad, state, ADAM_SHARE * lr)


def _muon_step(kernel: nn.Parameter, gradient: Tensor, momentum: Tensor, lr: float) -> None:
    """One step of a kernel: the orthogonalised gradient, in the kernel's own length."""
    momentum.mul_(MOMENTUM).add_(gradient)
    ahead = gradient.add(momentum, alpha=MOMENTUM)
    update = orthogonalised(ahead.flatten(1)).view_as(kernel)
    # A kernel of zeros would stay so for ever without a least length.
    length = (kernel.norm() / update.norm().clamp_min(_TINY)).clamp_min(LEAST)
    kernel.sub_(update * (lr * length))


def _adam_step(vector: nn.Parameter, gradient: Tensor, state: dict[str, Tensor], lr: float) -> None:
    """A step of Adam."""
    (first, second), mean, square = DECAYS, state["momentum"], state["square"]
    mean.lerp_(gradient, 1 - first)
    square.lerp_(gradient.square(), 1 - second)
    state["steps"] += 1
    steps = int(state["steps"])
    # Both averages start at zero; without this the first steps would be too short.
    correction = math.sqrt(1 - second**steps) / (1 - first**steps)
    vector.addcdiv_(mean, square.sqrt().add_(_TINY), value=-lr * correction)


def orthogonalised(matrix: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns, by a few Newton-Schulz steps.

    >>> turned = orthogonalised(torch.diag(torch.tensor([5.0, 1.0, 0.2])))
    >>> bool(((turned.diagonal() > 0.6) & (turned.diagonal() < 1.3)).all())
    True
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    turned: Tensor = (matrix if wide else matrix.T) / matrix.norm().clamp_min(_TINY)
    for _ in range(STEPS):
        squares = turned @ turned.T
        mixed = torch.addmm(squares, squares, squares, beta=_CUBIC, alpha=_QUINTIC)
        turned = torch.addmm(turned, mixed, turned, beta=_LINEAR)
    return turned if wide else turned.T
