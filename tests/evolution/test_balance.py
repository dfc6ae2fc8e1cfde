"""Widths balanced by a scan: what is missed least for its price goes first."""

import itertools

import numpy as np
import pytest

from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.seeds import Balance, coarse_to_fine, seeds
from deeppruning.evolution.space import Space

SIZES = (12, 24, 16)
PRICES = np.repeat([1.0, 2.0, 1.0], SIZES)


def space_of(units: tuple[int, ...] = ()) -> Space:
    edges = np.cumsum([0, *SIZES])
    groups = [np.arange(low, high) for low, high in itertools.pairwise(edges)]
    scores = {"falling": -np.arange(float(sum(SIZES)))}
    return Space(sum(SIZES), groups, scores=scores, price=lambda genomes: genomes @ PRICES, units=units)


# Loss of each group at 75, 50 and 25 % of its filters, and without it.
EVEN = [0.1, 0.2, 0.3, np.inf]
DEAR = [1.0, 2.0, 3.0, np.inf]


def test_filters_go_where_they_are_missed_least_for_their_price() -> None:
    balance = Balance(space_of(), [DEAR, EVEN, DEAR], "falling")
    (genome,) = balance.genomes([52.0])
    # The second group alone gives way: 24 filters at 2 each are 48 of 76.
    assert space_of().widths(genome).tolist() == [12, 12, 16]
    assert genome @ PRICES == 52.0


def test_each_price_is_met_from_below_and_widths_only_fall() -> None:
    space = space_of()
    prices = [70.0, 55.0, 40.0, 20.0]
    found = list(Balance(space, [EVEN, EVEN, DEAR], "falling").genomes(prices))
    widths = [space.widths(genome) for genome in found]
    for genome, price in zip(found, prices, strict=True):
        assert price - 4.0 <= genome @ PRICES <= price  # a step of the second group costs 4
    assert all((after <= before).all() for before, after in itertools.pairwise(widths))


def test_a_unit_that_nobody_misses_goes_whole() -> None:
    space = space_of(units=(2,))
    (genome,) = Balance(space, [DEAR, DEAR, [0.5, 0.5, 0.5, 0.5]], "falling").genomes([60.0])
    assert space.widths(genome).tolist() == [12, 24, 0]


def test_what_cannot_be_met_ends_the_list() -> None:
    found = list(Balance(space_of(), [EVEN, EVEN, EVEN], "falling").genomes([50.0, 0.5]))
    assert len(found) == 1


@pytest.mark.parametrize(
    "row", [[0.2, 0.1, 0.3, np.inf], [np.inf, np.inf, np.inf, np.inf], [-1.0, 0.0, 0.1, 0.2]]
)
def test_a_scan_that_dips_or_breaks_down_is_borne(row: list[float]) -> None:
    (genome,) = Balance(space_of(), [row, EVEN, EVEN], "falling").genomes([60.0])
    assert genome @ PRICES <= 60.0


def test_balanced_seeds_come_first_one_for_each_share() -> None:
    shares = [0.3, 0.5, 0.7]
    found = list(seeds(space_of(), shares, [EVEN, EVEN, DEAR]))
    assert [seed.operator for seed in found[:4]] == ["balanced"] * 3 + ["falling"]
    archive = {"low": 0.15, "high": 0.85, "bins": 3}
    strategy = GuidedStrategy(space_of(), offspring=4, generations=2, losses=[EVEN, EVEN, DEAR], **archive)
    assert [origin.operator for origin in strategy.origins][:4] == ["original"] + ["balanced"] * 3


@pytest.mark.parametrize("count", [0, 1, 2, 3, 20])
def test_numbers_from_coarse_to_fine_are_all_there(count: int) -> None:
    assert sorted(coarse_to_fine(count)) == list(range(count))


def test_the_first_seeds_are_spread_over_the_whole_range_of_costs() -> None:
    space = space_of(units=(2,))
    shares = np.linspace(0.2, 0.8, 13).tolist()
    whole = float(PRICES.sum())
    first = list(itertools.islice(seeds(space, shares, [EVEN, EVEN, [0.05, 0.05, 0.05, 0.05]]), 6))
    spent = sorted(float(seed.genome @ PRICES) / whole for seed in first)
    assert spent == pytest.approx([0.2, 0.2, 0.5, 0.5, 0.8, 0.8], abs=0.05)
    assert [seed.operator for seed in first] == ["balanced", "balanced widths"] * 3


def test_after_a_scan_a_focus_has_its_balanced_seeds_and_then_offspring() -> None:
    losses = [EVEN, EVEN, [0.05, 0.05, 0.05, 0.05]]
    space = space_of(units=(2,))
    at_focus = list(seeds(space, [0.5], losses, only_balanced=True))
    assert [seed.operator for seed in at_focus] == ["balanced", "balanced widths"]
    strategy = GuidedStrategy(
        space, offspring=8, generations=6, bins=4, low=0.2, high=0.9, losses=losses, focus=0.5
    )
    shares = []
    while not strategy.done:
        genomes = strategy.ask()
        shares += (genomes @ PRICES / PRICES.sum()).tolist()
        strategy.tell(np.stack([1.0 - genomes.mean(axis=1), genomes @ PRICES], axis=1))
    late = np.array(shares[len(shares) // 2 :])  # offspring
    assert ((late > 0.45) & (late <= 0.5)).mean() >= 0.5
