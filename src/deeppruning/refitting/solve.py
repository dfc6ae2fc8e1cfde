"""Least squares drawn towards the weights there are: argmin |Y - X W|^2 + ridge * scale * |W - W0|^2.

>>> fit = Fit(inputs=1, outputs=1, intercept=False)
>>> fit.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [6.0]]))
>>> weights, _ = fit.solve(torch.zeros(1, 1), ridge=0.0)
>>> round(weights.item(), 4)
3.0
"""

from __future__ import annotations

import torch
from torch import Tensor

TOUCH = 1e-7  # of the mean diagonal, so that inputs that never speak do not make it unsolvable
SMALLEST = 1e-12


class Fit:
    """Sums over rows of inputs X and wanted outputs Y; rows come in pieces, so that memory stays bounded.

    Everything may have leading dimensions (the groups of a convolution), each solved by itself. With an
    intercept, means are taken off first: the answer then is the slope, and the offset that goes with it.
    """

    def __init__(self, *, inputs: int, outputs: int, intercept: bool, leading: tuple[int, ...] = ()) -> None:
        self.intercept = intercept
        self.rows = 0
        self.gram = torch.zeros(*leading, inputs, inputs, dtype=torch.float64)
        self.cross = torch.zeros(*leading, inputs, outputs, dtype=torch.float64)
        self.sum_x = torch.zeros(*leading, 1, inputs, dtype=torch.float64)
        self.sum_y = torch.zeros(*leading, 1, outputs, dtype=torch.float64)
        self.square_y = torch.zeros(*leading, 1, outputs, dtype=torch.float64)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows: x (..., rows, inputs), y (..., rows, outputs)."""
        self.rows += x.shape[-2]
        # Products in single precision, sums in double: the former is what takes the time.
        precision = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
        x, y = x.to(precision), y.to(precision)
        self.gram += (x.mT @ x).double().cpu()
        self.cross += (x.mT @ y).double().cpu()
        self.sum_x += x.sum(-2, keepdim=True, dtype=torch.float64).cpu()
        self.sum_y += y.sum(-2, keepdim=True, dtype=torch.float64).cpu()
        self.square_y += y.double().square().sum(-2, keepdim=True).cpu()

    @property
    def finite(self) -> bool:
        """Whether all rows were made of numbers whose squares can be summed."""
        return all(bool(sums.isfinite().all()) for sums in (self.gram, self.cross, self.square_y))

    def solve(self, start: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """Weights (..., inputs, outputs) near `start`, and the offsets (..., outputs) that go with them."""
        gram, cross = self._centred()
        first = start.double().cpu()
        scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(SMALLEST)[..., None]
        drawn = gram.clone()
        drawn.diagonal(dim1=-2, dim2=-1).add_((ridge + TOUCH) * scale)
        factor, failed = torch.linalg.cholesky_ex(drawn)
        change = torch.cholesky_solve(cross - gram @ first, factor)
        sound = (failed == 0) & change.isfinite().flatten(-2).all(-1)
        weights = first + torch.where(sound[..., None, None], change, torch.zeros_like(change))
        offset = (self.sum_y - self.sum_x @ weights) / max(self.rows, 1)
        return weights.to(start), offset.squeeze(-2).to(start)

    def spread(self, weights: Tensor) -> Tensor:
        """(..., outputs): the variance of what these weights answer, as a share of what is wanted."""
        gram, _ = self._centred(always=True)
        weights = weights.double().cpu()
        answered = (weights * (gram @ weights)).sum(-2)
        wanted = (self.square_y - self.sum_y.square() / max(self.rows, 1)).squeeze(-2)
        heard = wanted > SMALLEST * max(self.rows, 1)
        return torch.where(heard, answered / torch.where(heard, wanted, 1.0), 1.0).clamp_min(0.0)

    def _centred(self, *, always: bool = False) -> tuple[Tensor, Tensor]:
        if not (self.intercept or always) or not self.rows:
            return self.gram, self.cross
        means = self.sum_x / self.rows
        return self.gram - means.mT @ self.sum_x, self.cross - means.mT @ self.sum_y
