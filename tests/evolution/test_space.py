"""Widths and orders: which filters stay when a group is resized, and how widths meet a price."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deeppruning.errors import InputError
from deeppruning.evolution.space import Space
from space_helpers import chained

layers = st.lists(st.integers(1, 24), min_size=1, max_size=6)


def price_of(space: Space, genome: np.ndarray) -> float:
    return float(space.price(genome[None])[0])


def drawn(space: Space, seed: int, share: float = 0.5) -> np.ndarray:
    """A genome at random, as it is used."""
    genome = np.random.default_rng(seed).random(space.num_genes) < share
    return space.repaired(genome)


def least_of(space: Space, genome: np.ndarray) -> float:
    """What a genome costs at its least widths: a multiple of filters in each group that is there."""
    smallest = genome
    for group in np.flatnonzero(space.widths(genome)):
        count = min(int(space.least[group]), int(space.sizes[group]))
        smallest = space.resize(smallest, int(group), count, space.orders[0])
    return price_of(space, space.repaired(smallest))


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(0, 99), st.floats(0.0, 1.1))
def test_a_fit_costs_at_most_its_price_wherever_that_can_be_reached(sizes, seed, share):
    space = chained(sizes, least=2, seed=seed)
    start = drawn(space, seed)
    price = share * price_of(space, space.full())
    fitted = space.fit(start, price, "first")
    if price >= least_of(space, start):
        assert price_of(space, fitted) <= price
    else:
        assert price_of(space, fitted) == least_of(space, start)
    assert np.array_equal(space.repaired(fitted), fitted)


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(0, 99))
def test_a_price_of_the_whole_gives_the_whole_however_narrow_the_start(sizes, seed):
    space = chained(sizes, seed=seed)
    assert space.fit(space.repaired(~space.full()), price_of(space, space.full()), "second").all()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(0, 99), st.integers(1, 200))
def test_a_single_group_is_met_to_the_filter(size, seed, affordable):
    space = chained([size], seed=seed)
    one_more = price_of(space, space.resize(space.full(), 0, 1, "first"))
    assume(affordable <= size)
    fitted = space.fit(drawn(space, seed), one_more * affordable, "first")
    assert space.widths(fitted).tolist() == [affordable]


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(0, 99), st.lists(st.floats(0.0, 1.1), min_size=2, max_size=5))
def test_a_higher_price_never_buys_a_cheaper_network(sizes, seed, shares):
    space = chained(sizes, seed=seed)
    start, whole = drawn(space, seed), price_of(space, space.full())
    bought = [price_of(space, space.fit(start, share * whole, "first")) for share in sorted(shares)]
    assert bought == sorted(bought)


def test_a_fit_comes_near_its_price():
    space = chained([16, 16, 32, 32, 64, 64])
    whole = price_of(space, space.full())
    for share in np.linspace(0.05, 1.0, 39):
        spent = price_of(space, space.fit(space.full(), share * whole, "first")) / whole
        # At a twentieth a filter more in each of the six groups costs much of it; above, little.
        assert 0.85 * share <= spent <= share


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(0, 99), st.floats(0.0, 1.0), st.data())
def test_units_that_are_gone_stay_gone_and_no_other_goes(sizes, seed, share, data):
    units = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True))
    gone = data.draw(st.lists(st.sampled_from(units), unique=True)) if units else []
    space = chained(sizes, units=units, seed=seed)
    whole = price_of(space, space.full())
    genome = space.uniform(share * whole, "second", gone)
    assert sorted(space.gone(genome)) == sorted(gone)
    assert set(np.flatnonzero(space.widths(genome) == 0)) == set(gone)


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(1, 8), st.integers(0, 99), st.floats(0.0, 1.0))
def test_widths_are_multiples_or_all_there_is(sizes, multiple, seed, share):
    space = chained(sizes, multiple=multiple, seed=seed)
    genome = space.uniform(share * price_of(space, space.full()), "first")
    widths = space.widths(genome)
    assert all(width % multiple == 0 or width == size for width, size in zip(widths, sizes, strict=True))
    assert (widths >= np.minimum(multiple, sizes)).all()


@pytest.mark.parametrize(("multiple", "kept"), [(1, 3), (2, 4), (5, 5)])
def test_the_least_that_a_group_keeps_are_its_best_by_the_order(multiple, kept):
    space = chained([10, 2, 12], units=[2], least=3, multiple=multiple, seed=4)
    fitted = space.fit(space.full(), 0.0, "second")
    assert space.widths(fitted).tolist() == [kept, 2, kept]
    for group in (0, 2):
        genes = space.groups[group]
        best = genes[np.argsort(-space.scores["second"][genes])][:kept]
        assert set(genes[fitted[genes]]) == set(best)
    assert space.widths(space.uniform(0.0, "second", [2])).tolist() == [kept, 2, 0]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 99), st.data())
def test_resize_takes_the_last_and_brings_back_the_first_by_the_order(size, seed, data):
    space = chained([5, size], seed=seed)
    count = data.draw(st.integers(0, size))
    start = drawn(space, seed)
    before = start.copy()
    resized = space.resize(start, 1, count, "second")
    assert np.array_equal(start, before)
    genes, scores = space.groups[1], space.scores["second"]
    was, now = set(genes[start[genes]]), set(genes[resized[genes]])
    assert len(now) == count and (now <= was or was <= now)
    lost, came = was - now, now - was
    assert not lost or max(scores[list(lost)]) < min(scores[list(now)], default=np.inf)
    away = set(genes) - now
    assert not came or min(scores[list(came)]) > max(scores[list(away)], default=-np.inf)
    assert np.array_equal(resized[:5], start[:5])


def test_from_the_whole_the_best_by_the_order_are_kept():
    space = Space(
        6,
        [[0, 2, 4], [1, 3, 5]],
        scores={"up": np.arange(6.0), "down": -np.arange(6.0)},
        price=lambda genomes: genomes.sum(1),
    )
    kept = {
        order: [np.flatnonzero(space.resize(space.full(), g, 2, order)).tolist() for g in (0, 1)]
        for order in space.orders
    }
    assert kept == {"up": [[1, 2, 3, 4, 5], [0, 2, 3, 4, 5]], "down": [[0, 1, 2, 3, 5], [0, 1, 2, 3, 4]]}
    swapped = space.refill(space.resize(space.full(), 0, 2, "up"), 0, "down")
    assert np.flatnonzero(swapped).tolist() == [0, 1, 2, 3, 5]


def test_anywhere_takes_the_lowest_scores_over_the_mean_of_their_group():
    space = Space(
        4,
        [[0, 1], [2, 3]],
        scores={"s": [1.0, 3.0, 90.0, 110.0]},  # over the means 2 and 100: 0.5, 1.5, 0.9, 1.1
        price=lambda genomes: genomes.sum(1),
    )
    kept = [np.flatnonzero(space.anywhere(price, "s")).tolist() for price in (4, 3, 2.5, 1, 0)]
    assert kept == [[0, 1, 2, 3], [1, 2, 3], [1, 3], [1], []]


@settings(max_examples=40, deadline=None)
@given(layers, st.integers(0, 99), st.floats(0.0, 1.0))
def test_anywhere_costs_at_most_its_price_and_is_the_dearest_that_does(sizes, seed, share):
    space = chained(sizes, seed=seed)
    whole = price_of(space, space.full())
    least = price_of(space, space.repaired(~space.full()))
    assert price_of(space, space.anywhere(share * whole, "first")) <= max(share * whole, least)


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [[1.0, 2.0, 3.0]]])
def test_scores_of_another_length_are_refused(values):
    with pytest.raises(InputError, match=r"the order 'mine' has scores of shape .*, the network has 3 genes"):
        Space(3, [[0, 1, 2]], scores={"mine": values}, price=lambda genomes: genomes.sum(1))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(wrong):
    with pytest.raises(InputError, match=f"the order 'mine' has the score {wrong} for gene 2: not finite"):
        Space(3, [[0, 1, 2]], scores={"mine": [0.0, 1.0, wrong]}, price=lambda genomes: genomes.sum(1))


def test_without_groups_or_orders_there_is_nothing_to_vary():
    with pytest.raises(InputError, match="no group of genes is given"):
        Space(3, [], scores={"mine": [1.0, 2.0, 3.0]}, price=lambda genomes: genomes.sum(1))
    with pytest.raises(InputError, match="without an order of them: give scores"):
        Space(3, [[0, 1, 2]], scores={}, price=lambda genomes: genomes.sum(1))
