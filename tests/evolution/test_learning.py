"""What is learnt from evaluations: prices that lead to costs, and options that succeed more often."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.evolution.learning import EVEN, FLATTEST, STEEPEST, Chances, Steering

shares = st.floats(0.01, 1.0)


@settings(deadline=None)
@given(st.lists(shares, max_size=20), shares, shares)
def test_where_the_price_is_the_cost_the_top_of_the_range_is_asked_for(known, parent, top):
    steering = Steering()
    for share in known:
        steering.learn(price=share, cost=share)
    assert steering.exact and steering.exponent == 1.0
    # In any unit: of a parent at 7 units a share.
    assert steering.price(7 * parent, parent, low=0.9 * top, top=top) == pytest.approx(7 * top, rel=1e-12)


@pytest.mark.parametrize("power", [0.25, 0.5, 2.0, 3.0])
def test_a_power_of_the_price_is_learnt_and_the_middle_asked_for(power):
    steering = Steering()
    for price in (1.0, 0.7, 0.2):
        steering.learn(price=price, cost=price**power)
    assert not steering.exact and steering.exponent == power
    price = steering.price(0.7, 0.7**power, low=0.16, top=0.25)
    assert price**power == pytest.approx(0.2, rel=1e-9)  # the geometric mean of 0.16 and 0.25


def test_costs_with_an_overhead_are_met_in_a_few_steps():
    """A latency: a third of it stays, whatever is cut."""
    steering, price = Steering(), 0.8
    found = []
    for _ in range(6):
        cost = (1 + 2 * price) / 3
        steering.learn(price=price, cost=cost)
        found.append(cost)
        price = steering.price(price, cost, low=0.44, top=0.46)
    assert 0.44 <= found[-1] <= 0.46
    assert np.all(np.diff(np.abs(np.array(found) - 0.45)) < 0)


def test_what_says_nothing_or_nonsense_does_no_harm():
    steering = Steering()
    for price, cost in ((0.0, 0.5), (0.5, 0.0), (0.5, -1.0), (1.0, 1.0)):
        steering.learn(price=price, cost=cost)
    assert steering.exact and steering.exponent == 1.0
    steering.learn(price=0.5, cost=2.0)  # dearer though smaller: no power at all
    assert not steering.exact and steering.exponent == 1.0
    flat, steep = Steering(), Steering()
    flat.learn(price=0.1, cost=0.999)
    steep.learn(price=0.999, cost=0.1)
    assert (flat.exponent, steep.exponent) == (FLATTEST, STEEPEST)


def test_all_begin_alike_and_add_up_to_one() -> None:
    chances = Chances(("a", "b", "c", "d"))
    assert [chances.of(name) for name in chances.names] == [0.25] * 4


def test_what_never_succeeds_keeps_its_part_of_what_is_shared_evenly() -> None:
    chances = Chances(("a", "b"))
    for _ in range(1000):
        chances.learn("a", success=True)
        chances.learn("b", success=False)
    assert EVEN / 2 < chances.of("b") < EVEN / 2 + 0.01
    rng = np.random.default_rng(0)
    drawn = [chances.draw(rng) for _ in range(1000)]
    assert 100 < drawn.count("b") < 200
    assert chances.tried["a"] == 1000 and chances.successes["b"] == 0
