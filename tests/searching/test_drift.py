"""How far outputs have drifted, worked out by hand."""

import math
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from deeppruning.errors import Diverged, InputError
from deeppruning.searching.task import Judgement
from deeppruning.searching.unlabelled import drift


def test_class_scores_are_compared_by_answer_and_by_divergence():
    odds = torch.tensor([[3.0, 1.0], [1.0, 1.0], [1.0, 3.0]]).log()
    moved = torch.tensor([[1.0, 3.0], [1.0, 1.0], [1.0, 3.0]]).log()
    found = drift(odds, moved)
    # One of three answers is another; there 3/4 and 1/4 have changed places.
    assert found.error == 1 / 3
    assert found.score == pytest.approx((0.75 * math.log(3) - 0.25 * math.log(3)) / 3)
    assert drift(odds, odds + 5.0).score == pytest.approx(0.0, abs=1e-6)  # only differences count
    assert drift(odds, odds) == Judgement(0.0, 0.0)


def test_other_outputs_by_the_squared_distance_beside_the_variance():
    wanted = torch.tensor([[[0.0]], [[2.0]], [[4.0]]])  # variance 8/3
    found = drift(wanted, wanted + 2.0)
    assert found.error == found.score == pytest.approx(4.0 / (4.0 + 8.0 / 3.0))
    assert drift(wanted, wanted) == Judgement(0.0, 0.0)
    one_column = drift(wanted[:, 0], wanted[:, 0] + 2.0)
    assert one_column == found  # a single number an input has no classes
    assert drift(torch.tensor([[[3.0]]]), torch.tensor([[[0.0]]])).score == pytest.approx(0.5)


@pytest.mark.parametrize("turned", [False, True])
def test_a_detector_that_loses_its_scores_is_not_saved_by_its_coordinates(turned: bool):
    generator = torch.Generator().manual_seed(0)
    coordinates, scores = (torch.randn(4, rows, 50, generator=generator) for rows in (4, 2))
    wanted, lost = (
        torch.cat([100 * coordinates, 0.01 * scores], 1),
        torch.cat([100 * coordinates, 0 * scores], 1),
    )
    wanted, lost = (each.transpose(1, 2) if turned else each for each in (wanted, lost))
    assert drift(wanted, wanted) == Judgement(0.0, 0.0)
    # Two slices of six keep nothing of what varies: about half of the squares is distance, half variance.
    assert drift(wanted, lost).score == pytest.approx(2 / 6 * 0.57, abs=0.02)


def test_nested_outputs_count_alike_whatever_their_scale():
    Pair = namedtuple("Pair", ["boxes", "rest"])
    boxes, masks = torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[0.0], [200.0], [400.0]])
    wanted = Pair(boxes, {"masks": masks, "count": torch.tensor([1, 2, 3]), "name": "a"})
    found = Pair(boxes + 2.0, {"masks": masks, "count": torch.tensor([3, 2, 1]), "name": "b"})
    assert drift(wanted, found).score == pytest.approx(0.3)  # 0.6 and 0; whole numbers are left out


class Named(dict):
    """A dict of a class of its own."""


@dataclass
class Detected:
    boxes: Tensor
    rest: Any


@dataclass(slots=True)
class Slotted:
    boxes: Tensor
    rest: Any = None


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda boxes: Detected(boxes, {"n": Slotted(2 * boxes)}),
        lambda boxes: SimpleNamespace(boxes=boxes, rest=[Detected(2 * boxes, None)]),
        lambda boxes: Named(boxes=boxes, rest=Named(inner=2 * boxes)),
        lambda boxes: Slotted(boxes, (SimpleNamespace(a=2 * boxes),)),
    ],
)
def test_outputs_in_classes_of_their_own_are_looked_into(wrapped):
    boxes = torch.tensor([[0.0], [2.0], [4.0]])
    assert drift(wrapped(boxes), wrapped(boxes)) == Judgement(0.0, 0.0)
    # The second tensor is moved by 4: its variance and distance are four times as large.
    assert drift(wrapped(boxes), wrapped(boxes + 2.0)).score == pytest.approx(0.6)


def test_outputs_that_are_constant_do_not_divide_by_nothing():
    wanted = torch.ones(3, 1)
    assert drift(wanted, wanted) == Judgement(0.0, 0.0)
    assert math.isfinite(drift(wanted, wanted + 1).score)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_not_finite_have_diverged(value):
    with pytest.raises(Diverged, match="not finite"):
        drift(torch.zeros(2, 3), torch.full((2, 3), value))


def test_other_shapes_have_diverged_and_no_numbers_are_refused():
    with pytest.raises(Diverged, match="shape"):
        drift(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(Diverged, match="shape"):
        drift([torch.zeros(2)], [torch.zeros(2), torch.zeros(2)])
    with pytest.raises(InputError, match="floating-point"):
        drift({"a": torch.tensor([1])}, {"a": torch.tensor([2])})
