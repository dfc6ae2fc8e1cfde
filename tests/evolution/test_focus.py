"""A focus: half of the guided strategy's effort goes to one cost, and filters are counted out to meet it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_guided import lost, run, space_of, strategy_of

from space_helpers import chained


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(0, 5))
def test_a_genome_is_filled_up_to_a_price_as_far_as_another_filter_fits(share, seed):
    space = chained((7, 12, 9, 16), seed=seed)
    whole = float(space.price(space.full()[None])[0])
    fitted = space.uniform(share * whole, "first")
    filled = space.fill(fitted, share * whole, "first")
    assert (filled >= fitted).all()
    spent = float(space.price(filled[None])[0])
    if float(space.price(fitted[None])[0]) > share * whole:  # even the least widths cost more
        assert np.array_equal(filled, fitted)
        return
    assert spent <= share * whole
    widths = space.widths(filled)
    wider = [
        space.resize(filled, group, int(widths[group]) + 1, "first")
        for group in range(4)
        if widths[group] < space.sizes[group]
    ]
    assert spent >= 0.998 * share * whole or (space.price(np.array(wider)) > share * whole).all()


def at_focus(strategy, share):
    whole = float(strategy.space.price(strategy.space.full()[None])[0])
    prices = np.concatenate([strategy.space.price(batch) for batch in run(strategy)]) / whole
    return float(((prices > 0.97 * share) & (prices <= share + 1e-9)).mean())


@pytest.mark.parametrize("share", [pytest.param(0.3, marks=pytest.mark.slow), 0.6])
def test_a_good_part_of_all_genomes_lies_just_at_the_focus(share):
    aimed, free = at_focus(strategy_of(focus=share), share), at_focus(strategy_of(), share)
    assert aimed > 0.25 > free + 0.1


def test_no_focus_leaves_every_genome_as_it_was():
    assert all(
        np.array_equal(a, b) for a, b in zip(run(strategy_of()), run(strategy_of(focus=None)), strict=True)
    )


def test_a_focus_can_be_replayed():
    told = run(strategy_of(focus=0.4))
    assert all(np.array_equal(a, b) for a, b in zip(told, run(strategy_of(focus=0.4)), strict=True))


def test_several_limits_are_kept_at_once():
    space = space_of()
    whole = float(space.price(space.full()[None])[0])

    def used(genomes):
        return np.maximum(space.price(genomes) / (0.5 * whole), genomes.mean(axis=1) / 0.45)

    batches = run(strategy_of(space, focus=0.3, limits=space.priced(used)))
    spent = np.concatenate([used(batch) for batch in batches])
    assert ((spent > 0.95) & (spent <= 1.0)).mean() > 0.3


def test_a_measured_cost_is_met_by_steering():
    """A latency that falls with the square root of the price, at first unknown to the strategy."""
    strategy = strategy_of(focus=0.6, generations=10)
    space = strategy.space
    whole = float(space.price(space.full()[None])[0])
    costs = []

    def answer(genomes):
        cost = (space.price(genomes) / whole) ** 0.5
        costs.append(cost)
        return np.stack([lost(space, genomes), cost], axis=1), None

    run(strategy, answer)
    late = np.concatenate(costs[4:])
    assert ((late > 0.51) & (late <= 0.62)).mean() > 0.3
