"""Least squares with a ridge towards the present weights: argmin |Y - X W|^2 + ridge * scale * |W - W0|^2.

>>> fit = Fit(inputs=1, outputs=1, intercept=False)
>>> fit.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [6.0]]))
>>> weights, _ = fit.solve(torch.zeros(1, 1), ridge=0.0)
>>> round(weights.item(), 4)
3.0
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from deeppruning.refitting.memory import MOST_HELD

TOUCH = 1e-7  # of the mean diagonal, so that inputs that are always zero do not make it unsolvable
SMALLEST = 1e-12
FIRM = 1e-3  # ridge from which single precision suffices for products of rows
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0)  # to choose from; smaller ones fit a little better and train much worse
PLACES = range(len(RIDGES))
TRIED = 64  # outputs by which a ridge is chosen
WIDE = 512  # columns from which their products are computed in blocks
BLOCKS = 8  # of columns; leaves a third of the work out
STEPS = 3  # in which a solution moves within intervals


class Fit:
    """Rows of inputs X and target outputs Y, added in chunks, and the weights between them.

    Of many rows only sums are stored, so that memory stays bounded. Everything may have leading dimensions
    (the groups of a convolution), each solved separately. With an intercept, means are subtracted first: the
    solution is then the slope and its offset.

    A target can be an interval (`within`): behind a ReLU, all values below zero are as good as each other.
    A solution is then moved in a few steps, each the least-squares solution for the points of the intervals
    that are nearest to the outputs before it.
    """

    def __init__(self, *, inputs: int, outputs: int, intercept: bool, leading: tuple[int, ...] = ()) -> None:
        self.intercept = intercept
        self.rows = 0
        self._inputs, self._outputs, self._leading = inputs, outputs, leading
        self._held: list[tuple[Tensor, Tensor]] = []  # while there are fewer rows than inputs
        self._intervals: list[tuple[Tensor, Tensor, Tensor]] = []  # rows, least and greatest outputs
        self._gram: Tensor | None = None  # afterwards
        self._cross = torch.zeros(*leading, inputs, outputs, dtype=torch.float64)
        self._sum_x = torch.zeros(*leading, 1, inputs, dtype=torch.float64)
        self._sum_y = torch.zeros(*leading, 1, outputs, dtype=torch.float64)
        self._square_y = torch.zeros(*leading, 1, outputs, dtype=torch.float64)

    def add(self, x: Tensor, y: Tensor, within: tuple[Tensor, Tensor] | None = None) -> None:
        """Add rows: x (..., rows, inputs), y (..., rows, outputs) and, of the same shape, their intervals."""
        self.rows += x.shape[-2]
        # Products in single precision, because they take the time; sums in double.
        precision = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
        x, y = x.to(precision), y.to(precision)
        self._sum_x += x.sum(-2, keepdim=True, dtype=torch.float64).cpu()
        self._sum_y += y.sum(-2, keepdim=True, dtype=torch.float64).cpu()
        self._square_y += y.double().square().sum(-2, keepdim=True).cpu()
        self._held.append((x, y))
        if within is not None:
            self._intervals.append((x, *within))
        # Many at once: the sums are as large as the inputs squared, however few rows are added.
        if sum(x.shape[-2] for x, _ in self._held) >= self._inputs:
            self._sum_up()

    def _sum_up(self) -> Tensor:
        """Replace the rows by the sums of their products."""
        if self._gram is None:
            self._gram = torch.zeros(*self._leading, self._inputs, self._inputs, dtype=torch.float64)
        if self._held:
            x, y = (torch.cat(pieces, -2) for pieces in zip(*self._held, strict=True))
            self._gram += products_of_columns(x).double().cpu()
            self._cross += (x.mT @ y).double().cpu()
            self._held = []
        return self._gram

    @property
    def finite(self) -> bool:
        """Whether all rows are finite and their squares can be summed."""
        few = self._gram is None
        sums = [x.square().sum((-2, -1)) for x, _ in self._held] if few else [self._sum_up()]
        sums += [self._square_y, self._cross]
        return all(bool(values.isfinite().all()) for values in sums)

    def solve(self, start: Tensor, ridge: float, steps: int = STEPS) -> tuple[Tensor, Tensor]:
        """Weights (..., inputs, outputs) near `start`, and the offsets (..., outputs) that go with them.

        Where all targets are intervals, they are found in so many steps.
        """
        first = start.double().cpu()
        few = self._few and ridge >= FIRM
        change, sound = self._by_rows(first, ridge) if few else self._by_inputs(first, ridge)
        weights = first + torch.where(sound[..., None, None], change, torch.zeros_like(change))
        offset = (self._sum_y - self._sum_x @ weights) / max(self.rows, 1)
        if self.by_intervals:
            weights, offset = self._within(first, ridge, weights, offset, steps)
        return weights.to(start), offset.squeeze(-2).to(start)

    @property
    def _few(self) -> bool:
        """Whether there are fewer rows than inputs: one unknown per row then gives the same solution."""
        return self._gram is None and bool(self._held)

    @property
    def by_intervals(self) -> bool:
        """Whether all rows have intervals, and not too many numbers."""
        rows = sum(x.shape[-2] for x, _, _ in self._intervals)
        return 0 < rows == self.rows and rows * self._inputs * math.prod(self._leading) <= MOST_HELD

    def _within(
        self, first: Tensor, ridge: float, weights: Tensor, offset: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """The solution for intervals, from the one for plain targets.

        Each step starts ahead of the last solution, in the direction of the last step (Nesterov): with as
        many steps that comes closer.
        """
        x, least, greatest = (torch.cat(pieces, -2) for pieces in zip(*self._intervals, strict=True))
        change_for = self._change_by_rows(x, ridge) if self._few and ridge >= FIRM else self._change(x, ridge)
        if change_for is None:
            return weights, offset
        free = float(self.intercept)  # without an intercept, the offset stays zero
        offset, before = free * offset, x @ first.to(x)
        ahead, ahead_offset, inertia = weights, offset, 1.0
        for _ in range(steps):
            nearest = (x @ ahead.to(x) + ahead_offset.to(x)).clamp(least, greatest)
            total = nearest.sum(-2, keepdim=True, dtype=torch.float64).cpu()
            moved = first + change_for(nearest - before)
            moved_offset = free * (total - self._sum_x @ moved) / self.rows
            grown = (1 + math.sqrt(1 + 4 * inertia**2)) / 2
            further, inertia = (inertia - 1) / grown, grown
            ahead = moved + further * (moved - weights)
            ahead_offset = moved_offset + further * (moved_offset - offset)
            weights, offset = moved, moved_offset
        return weights, offset

    def _change(self, x: Tensor, ridge: float) -> Callable[[Tensor], Tensor] | None:
        """From what the outputs miss to the change of weights, with one unknown per input."""
        gram, _ = self._centred_sums()
        scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(SMALLEST)
        kind = x.dtype if ridge >= FIRM else torch.float64
        factor, failed = _factor(gram.to(kind), ((ridge + TOUCH) * scale).to(kind))
        means = float(self.intercept) * self._sum_x / self.rows

        def change(missed: Tensor) -> Tensor:
            sums = missed.sum(-2, keepdim=True, dtype=torch.float64).cpu()
            cross = (x.mT @ missed).double().cpu() - means.mT @ sums
            return torch.cholesky_solve(cross.to(kind), factor).double()

        return None if bool(failed.any()) else change

    def _change_by_rows(self, x: Tensor, ridge: float) -> Callable[[Tensor], Tensor] | None:
        """The same with one unknown per row."""
        if self.intercept:
            x = x - (self._sum_x / self.rows).to(x)
        factor, failed = self._factor_rows(x, ridge)

        def change(missed: Tensor) -> Tensor:
            return (x.mT @ torch.cholesky_solve(missed.cpu(), factor).to(x)).double().cpu()

        return None if bool(failed.any()) else change

    def _factor_rows(self, x: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """The factor of XX' + ridge, on the CPU, in the precision of the rows."""
        products = (x @ x.mT).cpu()
        scale = (x.double().square().sum((-2, -1)).cpu() / self._inputs).clamp_min(SMALLEST)
        return _factor(products, ((ridge + TOUCH) * scale).to(products.dtype))

    def _by_inputs(self, first: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """One unknown per input: (X'X + ridge) change = X'(Y - X first)."""
        gram, cross = self._centred_sums()
        scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(SMALLEST)
        factor, failed = _factor(gram, (ridge + TOUCH) * scale)
        change = torch.cholesky_solve(cross - gram @ first, factor)
        return change, (failed == 0) & change.isfinite().flatten(-2).all(-1)

    def _by_rows(self, first: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        """One unknown per row, the same solution: change = X'(XX' + ridge)^-1 (Y - X first)."""
        x, y = self._deviations(centred=self.intercept)
        scale = (x.double().square().sum((-2, -1)).cpu() / self._inputs).clamp_min(SMALLEST)
        factor, failed = _factor((x @ x.mT).double().cpu(), (ridge + TOUCH) * scale)
        missed = (y - x @ first.to(x)).double().cpu()
        change = (x.mT @ torch.cholesky_solve(missed, factor).to(x)).double().cpu()
        return change, (failed == 0) & change.isfinite().flatten(-2).all(-1)

    def join(self, other: Fit) -> None:
        """Take over the rows of another fit of the same sizes."""
        self.rows += other.rows
        self._sum_x += other._sum_x
        self._sum_y += other._sum_y
        self._square_y += other._square_y
        self._intervals += other._intervals
        if self._gram is None and other._gram is None:
            self._held += other._held
        else:
            self._gram = self._sum_up() + other._sum_up()
            self._cross += other._cross
        if self.rows >= self._inputs:
            self._sum_up()

    def best_ridge(self, held_out: Fit, start: Tensor) -> float:
        """Of `RIDGES`, the one whose solution on these rows fits the rows of `held_out` best."""
        some = slice(None, None, -(-self._outputs // TRIED))
        first = start.double().cpu()[..., some]
        both = self._few and held_out._few
        error = (self._error_by_rows if both else self._error)(held_out, first, some)
        errors: dict[int, float] = {}
        best = len(RIDGES) // 2
        # From the middle to the better side, as long as it gets better.
        while new := [
            place for place in (best, best - 1, best + 1) if place in PLACES and place not in errors
        ]:
            # Twice as many rows, as in the end, need half of the ridge in proportion to them.
            errors |= {place: error(2 * RIDGES[place]) for place in new}
            best = min(errors, key=lambda place: (errors[place], place))
        return RIDGES[best]

    def _error(self, held_out: Fit, first: Tensor, some: slice) -> Callable[[float], float]:
        """The squared error on other rows by ridge, up to a constant, with one unknown per input."""
        gram, cross = self._centred_sums()
        other, wanted = held_out._centred_sums()
        missed, wanted = (cross[..., some] - gram @ first).float(), wanted[..., some] - other @ first
        scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(SMALLEST)
        single = gram.float()

        def error(ridge: float) -> float:
            factor, _ = _factor(single, (ridge * scale).float())
            change = torch.cholesky_solve(missed, factor).double()
            return float((change * (other @ change - 2 * wanted)).sum())

        return error

    def _error_by_rows(self, held_out: Fit, first: Tensor, some: slice) -> Callable[[float], float]:
        """The same with one unknown per row."""
        x, y = self._deviations(centred=self.intercept)
        other, wanted = held_out._deviations(centred=self.intercept)
        missed = (y[..., some] - x @ first.to(x)).cpu()
        lacking = (wanted[..., some] - other @ first.to(x)).cpu()
        mixed = (other @ x.mT).cpu()

        def error(ridge: float) -> float:
            factor, _ = self._factor_rows(x, ridge)
            return float((mixed @ torch.cholesky_solve(missed, factor) - lacking).double().square().sum())

        return error

    def spread(self, weights: Tensor) -> Tensor:
        """(..., outputs): the explained variance, as a share of the targets' variance."""
        if self._gram is None and self._held:
            x, _ = self._deviations(centred=True)
            explained = (x @ weights.to(x)).double().square().sum(-2).cpu()
        else:
            gram, _ = self._centred_sums(always=True)
            weights = weights.double().cpu()
            explained = (weights * (gram @ weights)).sum(-2)
        total = (self._square_y - self._sum_y.square() / max(self.rows, 1)).squeeze(-2)
        varies = total > SMALLEST * max(self.rows, 1)
        return torch.where(varies, explained / torch.where(varies, total, 1.0), 1.0).clamp_min(0.0)

    def _deviations(self, *, centred: bool) -> tuple[Tensor, Tensor]:
        """The stored rows, minus their means if `centred`."""
        x, y = (torch.cat(pieces, -2) for pieces in zip(*self._held, strict=True))
        if not centred:
            return x, y
        return x - (self._sum_x / self.rows).to(x), y - (self._sum_y / self.rows).to(y)

    def _centred_sums(self, *, always: bool = False) -> tuple[Tensor, Tensor]:
        gram = self._sum_up()
        if not (self.intercept or always) or not self.rows:
            return gram, self._cross
        means = self._sum_x / self.rows
        return gram - means.mT @ self._sum_x, self._cross - means.mT @ self._sum_y


def products_of_columns(x: Tensor) -> Tensor:
    """X'X, of which the part below the diagonal is not computed again.

    >>> products_of_columns(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[10., 14.],
            [14., 20.]])
    """
    columns = x.shape[-1]
    if columns < WIDE:
        return x.mT @ x
    products = x.new_empty(*x.shape[:-2], columns, columns)
    step = -(-columns // BLOCKS)
    for first in range(0, columns, step):
        end = min(first + step, columns)
        block = x[..., first:end].mT @ x[..., first:]
        products[..., first:end, first:] = block
        products[..., end:, first:end] = block[..., end - first :].mT
    return products


def _factor(matrix: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of a matrix with an added diagonal, and where there is none."""
    regular = matrix.clone()
    regular.diagonal(dim1=-2, dim2=-1).add_(added[..., None])
    factor, failed = torch.linalg.cholesky_ex(regular)
    return factor, failed
