"""Knee and boundary selection against cases worked out by hand from its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deeppruning.errors import InputError
from deeppruning.evolution import Picks, select

# Each case: objectives, then (knee, heavy, light) from the definition.
CASES = {
    # scaled: (0, 1), (0.125, 0.25), (1, 0) -> distances 1, 0.375, 1
    "three on a convex front": ([[0.1, 90], [0.2, 30], [0.9, 10]], (1, 0, 2)),
    # min-max runs over all of P: the dominated (0.9, 200) stretches the cost scale, so the distances are
    # 0 + 140/150, 0.4/0.8 + 0, 0.8/0.8 + 1, 0.2/0.8 + 40/150 = 0.93, 0.5, 2, 0.517. Over the
    # non-dominated alone they would be 1, 1, -, 0.786, and the knee would be individual 3.
    "dominated ones count in the scaling": ([[0.1, 190], [0.5, 50], [0.9, 200], [0.3, 90]], (1, 0, 1)),
    "all errors equal": ([[0.5, 30], [0.5, 10], [0.5, 20]], (1, 1, 1)),
    "all costs equal": ([[0.3, 7], [0.2, 7], [0.4, 7]], (1, 1, 1)),
    "all the same": ([[0.5, 7], [0.5, 7]], (0, 0, 0)),
    "one alone": ([[1.0, 3]], (0, 0, 0)),
    "heavy tie goes to the smaller cost": ([[0.1, 50], [0.1, 40], [0.9, 10]], (1, 1, 2)),
    # scaled: (0, 1), (1, 0), (6/7, 0) -> distances 1, 1, 0.857
    "light tie goes to the smaller error": ([[0.1, 50], [0.8, 10], [0.7, 10]], (2, 0, 2)),
    # distances 1, 1, 1: the smallest error wins.
    "knee tie goes to the smaller error": ([[1.0, 0], [0.5, 50], [0.0, 100]], (2, 2, 0)),
    # scaled: (0.5, 0.5), (0, 1) twice, (1, 0) twice -> distances all 1: the smallest error, lowest index
    "equal rows go to the lower index": ([[0.5, 50], [0.1, 90], [0.1, 90], [0.9, 10], [0.9, 10]], (1, 1, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_cases_worked_out_by_hand(case):
    objectives, (knee, heavy, light) = CASES[case]
    assert select(np.array(objectives, dtype=float)) == Picks(knee, heavy, light)


finite = st.floats(-1e6, 1e6, allow_subnormal=False)


@given(arrays(float, st.tuples(st.integers(1, 12), st.just(2)), elements=finite))
def test_agrees_with_the_definition_read_literally(objectives):
    picks = select(objectives)
    f1, f2 = objectives[:, 0].tolist(), objectives[:, 1].tolist()

    def term(values, k):
        span = max(values) - min(values)
        return (values[k] - min(values)) / span if span else 0.0

    distances = [term(f1, k) + term(f2, k) for k in range(len(f1))]
    assert f1[picks.heavy] == min(f1)
    assert f2[picks.light] == min(f2)
    assert distances[picks.knee] == min(distances)


@given(arrays(float, st.tuples(st.integers(2, 12), st.just(2)), elements=finite))
def test_picks_are_never_dominated_boundaries(objectives):
    picks = select(objectives)
    for row in (picks.heavy, picks.light):
        better = (objectives <= objectives[row]).all(axis=1) & (objectives < objectives[row]).any(axis=1)
        assert better.sum() == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_objectives_that_are_not_finite_are_refused_by_individual(bad):
    with pytest.raises(InputError, match="individual 1; leave out a candidate that failed"):
        select(np.array([[0.1, 1.0], [bad, 2.0]]))


@pytest.mark.parametrize("shape", [(0, 2), (3, 3), (2,)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(InputError, match="shape"):
        select(np.zeros(shape))
