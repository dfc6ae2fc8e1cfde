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

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add rows: x (..., rows, inputs), y (..., rows, outputs)."""
        self.rows += x.shape[-2]
        # Products in single precision, sums in double: the former is what takes the time.
        self.gram += (x.mT @ x).double().cpu()
        self.cross += (x.mT @ y).double().cpu()
        self.sum_x += x.double().sum(-2, keepdim=True).cpu()
        self.sum_y += y.double().sum(-2, keepdim=True).cpu()

    def solve(self, start: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """Weights (..., inputs, outputs) near `start`, and the offsets (..., outputs) that go with them."""
        gram, cross = self.gram, self.cross
        if self.intercept and self.rows:
            gram = gram - self.sum_x.mT @ self.sum_x / self.rows
            cross = cross - self.sum_x.mT @ self.sum_y / self.rows
        first = start.double().cpu()
        scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)[..., None, None]
        identity = torch.eye(gram.shape[-1], dtype=torch.float64)
        # A touch more than asked for, so that inputs that never speak do not make it unsolvable.
        factor, failed = torch.linalg.cholesky_ex(gram + (ridge + 1e-7) * scale * identity)
        change = torch.cholesky_solve(cross - gram @ first, factor)
        sound = (failed == 0) & change.isfinite().flatten(-2).all(-1)
        weights = first + torch.where(sound[..., None, None], change, torch.zeros_like(change))
        offset = (self.sum_y - self.sum_x @ weights) / max(self.rows, 1)
        return weights.to(start), offset.squeeze(-2).to(start)
