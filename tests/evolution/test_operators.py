"""How offspring arise: each operator does what it says, and gives None where it does not apply."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.evolution.operators import OPERATORS, Variation
from deeppruning.evolution.space import Space
from space_helpers import chained

SIZES = (8, 12, 16, 12, 8)
UNITS = (3, 1)  # the dispensable first


def variation(space: Space, parent: np.ndarray, seed: int, other: np.ndarray | None = None) -> Variation:
    order = space.orders[seed % len(space.orders)]
    return Variation(space, parent, parent if other is None else other, order, np.random.default_rng(seed))


def halved(space: Space, gone: tuple[int, ...] = (), order: str = "first") -> np.ndarray:
    """Half of each group's filters; some units are gone."""
    genome = space.full()
    for group, size in enumerate(space.sizes):
        genome = space.resize(genome, group, 0 if group in gone else int(size) // 2, order)
    return genome


def changed_groups(space: Space, before: np.ndarray, after: np.ndarray) -> list[int]:
    return [g for g, genes in enumerate(space.groups) if not np.array_equal(before[genes], after[genes])]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(OPERATORS)),
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(0, 999),
)
def test_a_genome_of_the_right_length_or_none_and_the_parents_as_they_were(name, sizes, multiple, seed):
    space = chained(sizes, units=range(0, len(sizes), 2), multiple=multiple, seed=seed)
    rng = np.random.default_rng(seed)
    parent, other = (space.repaired(rng.random(space.num_genes) < 0.5) for _ in range(2))
    before = parent.copy(), other.copy()
    child = OPERATORS[name](variation(space, parent, seed, other))
    assert np.array_equal(parent, before[0]) and np.array_equal(other, before[1])
    if child is not None:
        assert child.shape == (space.num_genes,) and child.dtype == np.bool_
        kept = set(np.flatnonzero(space.widths(space.repaired(child)) == 0))
        assert kept <= set(space.units)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_changes_something(name):
    space = chained(SIZES, units=UNITS, orders=3)
    parent, other = halved(space, gone=(1,)), halved(space, gone=(3,), order="second")
    seeds = range(60)
    children = [OPERATORS[name](variation(space, parent, seed, other)) for seed in seeds]
    assert all(child is not None for child in children)
    changed = [bool(changed_groups(space, parent, child)) for child in children]
    if name == "scale":  # the price alone, which comes later
        assert not any(changed)
    elif name == "order":  # by that of the parent itself, the same filters are chosen again
        assert changed == [seed % 3 != 0 for seed in seeds]
    else:  # a crossing may take all from one parent, and a trade be of less than a filter
        assert all(changed) or (name in ("cross", "trade") and sum(changed) > 50)
    # The units leave no choice here but that of the order by which one comes back.
    few = {"scale": 1, "drop": 1, "restore": 3, "swap": 3}
    different = len({child.tobytes() for child in children})
    assert different == few[name] if name in few else different > 8


@pytest.mark.parametrize("seed", range(30))
def test_widths_change_in_some_groups_that_are_there_and_leave_the_rest(seed):
    space = chained(SIZES, units=UNITS)
    parent = halved(space, gone=(1,))
    v = variation(space, parent, seed)
    child = OPERATORS["widths"](v)
    changed = changed_groups(space, parent, child)
    assert 1 <= len(changed) <= 2 and 1 not in changed  # at most half of the four that are there
    for group in changed:  # nested: filters go by the order or come by it, never both
        genes = space.groups[group]
        assert (parent[genes] <= child[genes]).all() or (child[genes] <= parent[genes]).all()
        assert space.widths(child)[group] >= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_trade_takes_from_one_and_gives_to_another(seed):
    space = chained((40, 40, 40))
    parent = halved(space)
    child = OPERATORS["trade"](variation(space, parent, seed))
    difference = space.widths(child) - space.widths(parent)
    assert sorted(np.sign(difference)) == [-1, 0, 1]


def test_a_trade_needs_two_groups():
    space = chained((10,))
    assert OPERATORS["trade"](variation(space, halved(space), 0)) is None


@pytest.mark.parametrize("seed", range(10))
def test_an_order_changes_filters_and_no_width(seed):
    space = chained(SIZES, orders=3)
    parent = halved(space, order="third")
    v = variation(space, parent, seed)
    child = OPERATORS["order"](v)
    assert space.widths(child).tolist() == space.widths(parent).tolist()
    for group in changed_groups(space, parent, child):
        genes = space.groups[group]
        assert np.array_equal(child[genes], space.refill(parent, group, v.order)[genes])


def test_dropping_takes_a_unit_that_is_there_the_dispensable_more_often():
    space = chained(SIZES, units=(3, 1, 2))
    parent = halved(space, gone=(2,))
    dropped = [
        (set(space.gone(OPERATORS["drop"](variation(space, parent, seed)))) - {2}).pop()
        for seed in range(400)
    ]
    assert dropped.count(3) + dropped.count(1) == 400
    # The first of two is drawn where the square of a random number is below a half: 71 of 100.
    assert abs(dropped.count(3) / 400 - np.sqrt(0.5)) < 5 * np.sqrt(0.21 / 400)
    nothing_left = halved(space, gone=(1, 2, 3))
    assert OPERATORS["drop"](variation(space, nothing_left, 0)) is None
    assert OPERATORS["drop"](variation(chained(SIZES), halved(space), 0)) is None


def test_restoring_brings_a_unit_back_as_wide_as_the_rest_in_the_mean():
    space = chained(SIZES, units=(3, 1, 2))
    parent = halved(space, gone=(3, 1))
    back = []
    for seed in range(400):
        v = variation(space, parent, seed)
        child = OPERATORS["restore"](v)
        (unit,) = {3, 1} - set(space.gone(child))
        back.append(unit)
        assert np.array_equal(child, space.resize(parent, unit, int(space.sizes[unit]) // 2, v.order))
    assert abs(back.count(1) / 400 - np.sqrt(0.5)) < 5 * np.sqrt(0.21 / 400)  # 1 is missed more than 3
    assert OPERATORS["restore"](variation(space, halved(space), 0)) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_swap_keeps_the_number_of_units(seed):
    space = chained(SIZES, units=(3, 1, 2))
    parent = halved(space, gone=(3,))
    child = OPERATORS["swap"](variation(space, parent, seed))
    assert len(space.gone(child)) == 1 and 3 not in space.gone(child)
    assert OPERATORS["swap"](variation(space, halved(space), seed)) is None
    assert OPERATORS["swap"](variation(space, halved(space, gone=(1, 2, 3)), seed)) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_crossing_takes_each_group_whole_from_one_of_two(seed):
    space = chained(SIZES)
    parent, other = halved(space), ~halved(space)
    child = OPERATORS["cross"](variation(space, parent, seed, other))
    for genes in space.groups:
        assert np.array_equal(child[genes], parent[genes]) or np.array_equal(child[genes], other[genes])
    assert OPERATORS["cross"](variation(space, parent, seed)) is None
