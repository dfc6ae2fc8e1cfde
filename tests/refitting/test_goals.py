"""Where an activation hides what a layer answers, and what a refit gains by not asking for it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from deeppruning.refitting.goals import find_goal
from deeppruning.refitting.probing import probe
from deeppruning.refitting.readers import Gate
from deeppruning.refitting.solve import Fit


class Block(nn.Module):
    """Two layers of a residual block, with what is read behind each to be chosen."""

    def __init__(self, inner: nn.Module, outer: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        out = self.norm2(self.second(self.inner(self.norm1(self.first(x)))))
        out += x
        y: Tensor = self.head(self.outer(out).mean((2, 3)))
        return y


class Shown(Block):
    """The first layer's answers are read a second time, before the activation."""

    def forward(self, x: Tensor) -> Tensor:
        before = self.norm1(self.first(self.stem(x)))
        y: Tensor = self.head(self.outer(before).mean((2, 3))) + before.mean()
        return y


@pytest.mark.parametrize(
    ("inner", "outer", "gates"),
    [
        (nn.ReLU(inplace=True), nn.ReLU(), {"first": Gate(0.0), "second": Gate(0.0)}),
        (nn.ReLU6(inplace=True), nn.Identity(), {"first": Gate(0.0, 6.0)}),
        (nn.SiLU(), nn.Hardtanh(-2.0, 3.0), {"second": Gate(-2.0, 3.0)}),
        (nn.LeakyReLU(), nn.GELU(), {}),
    ],
)
def test_an_activation_is_found_behind_norm_and_sum(inner, outer, gates):
    found = probe(Block(inner, outer).eval(), ((torch.randn(4, 3, 8, 8),), {})).readers
    assert found.gates == gates


def test_what_is_read_before_the_activation_is_not_hidden():
    assert probe(Shown(nn.ReLU(), nn.ReLU()).eval(), ((torch.randn(4, 3, 8, 8),), {})).readers.gates == {}


def test_values_beyond_a_limit_may_move_away_from_it_on_either_side_of_a_norm():
    norm = nn.BatchNorm1d(2).eval()
    with torch.no_grad():
        norm.running_mean.copy_(torch.tensor([1.0, 0.0]))
        norm.weight.copy_(torch.tensor([2.0, -1.0]))  # the second turns the direction round
        norm.eps = 0.0
        # Behind the norm: -4, -5; 4, -1; 16, 7.
        answers = torch.tensor([[[-1.0, 5.0]], [[3.0, 1.0]], [[9.0, -7.0]]])
        goal = find_goal(answers, norm, Gate(0.0, 6.0))
    least, greatest = (bound.squeeze(1).tolist() for bound in goal.within)
    assert least == [[-math.inf, 0.0], [3.0, 0.0], [4.0, -math.inf]]
    assert greatest == [[1.0, math.inf], [3.0, math.inf], [math.inf, -6.0]]


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 1.0]), st.booleans())
def test_steps_within_intervals_never_lead_away_from_them(seed, ridge, intercept):
    """Each step is the best for points of the intervals: what is minimised cannot rise."""
    rng = torch.Generator().manual_seed(seed)
    x, y = torch.randn(60, 5, generator=rng), torch.randn(60, 3, generator=rng)
    least, greatest = torch.where(y < 0, -math.inf, y), y.clamp_min(0)
    start, reached = torch.randn(5, 3, generator=rng), []
    for steps in (0, 1, 4, 40):
        fit = Fit(inputs=5, outputs=3, intercept=intercept)
        fit.add(x, torch.where(y < 0, 0.0, y), (torch.where(y < 0, least, y), greatest))
        weights, offsets = fit.solve(start, ridge, steps)
        outputs = x @ weights + offsets * intercept
        missed = outputs - outputs.clamp(torch.where(y < 0, least, y), greatest)
        centred = x - x.mean(0) if intercept else x
        added = ridge * float(centred.square().sum()) / 5 * float((weights - start).square().sum())
        reached.append(float(missed.square().sum()) + added)
    assert reached[1] <= reached[0] * (1 + 1e-4) + 1e-4
    assert reached[2] <= reached[1] * (1 + 1e-4) + 1e-4
    assert reached[2] <= reached[3] * 1.01 + 1e-4  # a few steps ahead of themselves come close


def test_rows_that_were_not_fitted_gain_by_what_an_activation_hides():
    """Half of the inputs are gone; what counts is what passes the ReLU."""
    rng, missed = torch.Generator().manual_seed(0), {}
    x, weight = torch.randn(4000, 20, generator=rng).abs(), torch.randn(20, 6, generator=rng)
    y = x @ weight - 4.0  # mostly hidden
    for steps in (0, 3):
        fit = Fit(inputs=10, outputs=6, intercept=True)
        fit.add(x[:3000, :10], y[:3000], (torch.where(y < 0, -math.inf, y)[:3000], y.clamp_min(0)[:3000]))
        weights, offsets = fit.solve(weight[:10], 0.1, steps)
        passed = (x[3000:, :10] @ weights + offsets).relu()
        missed[steps] = float((passed - y[3000:].relu()).square().sum())
    assert missed[3] < 0.95 * missed[0]
