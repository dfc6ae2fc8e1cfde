"""The guided strategy as a whole: what it asks for, what it keeps and picks, and that it can be replayed."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.config import SearchConfig
from deeppruning.errors import InputError
from deeppruning.evolution.archive import Archive
from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.evolution.operators import OPERATORS
from deeppruning.evolution.seeds import seeds
from deeppruning.evolution.selection import select
from deeppruning.evolution.space import Space
from space_helpers import chained

SIZES = (16, 24, 16, 32, 24, 16)
UNITS = (3, 1)
Told = tuple[np.ndarray, np.ndarray | None]


def space_of(**options) -> Space:
    return chained(SIZES, **{"units": UNITS, "orders": 3, **options})


def strategy_of(space: Space | None = None, **options) -> GuidedStrategy:
    given = {"offspring": 6, "generations": 8, "low": 0.15, "high": 0.85, "bins": 8, "seed": 1, **options}
    return GuidedStrategy(space or space_of(), **given)


def lost(space: Space, genomes: np.ndarray) -> np.ndarray:
    """An error between 0 and 1: what is lost of each group's scores, the later groups mattering more."""
    worth = space.scores["first"]
    shares = np.stack([(genomes[:, g] * worth[g]).sum(1) / worth[g].sum() for g in space.groups], axis=1)
    weight = 4.0 ** np.arange(len(space.groups))
    return np.asarray(((1 - shares) ** 2 @ weight) / weight.sum())


def toy(space: Space) -> Callable[[np.ndarray], Told]:
    def objectives(genomes: np.ndarray) -> Told:
        return np.stack([lost(space, genomes), space.price(genomes)], axis=1), None

    return objectives


def run(strategy: GuidedStrategy, tell: Callable[[np.ndarray], Told] | None = None) -> list[np.ndarray]:
    answer = tell or toy(strategy.space)
    batches = []
    while not strategy.done:
        batches.append(strategy.ask())
        strategy.tell(*answer(batches[-1]))
    return batches


def test_a_run_asks_for_three_more_at_first_and_43_with_the_default_values():
    usual = SearchConfig()
    whole = strategy_of(offspring=usual.offspring, generations=usual.generations)
    assert whole.evaluations == usual.evaluations == 43
    strategy = strategy_of(offspring=5, generations=4)
    batches = run(strategy)
    assert [len(batch) for batch in batches] == [8, 5, 5, 5] and strategy.evaluations == 23
    assert all(batch.dtype == np.bool_ and batch.shape[1] == 128 for batch in batches)


def test_a_search_ended_by_its_time_has_the_seeds_of_what_is_planned_and_then_offspring():
    strategy = strategy_of(offspring=5, generations=10**9, planned=23)
    seeded = []
    for _ in range(5):
        asked = strategy.ask()
        seeded += [not origin.parents for origin in strategy.origins]
        strategy.tell(*toy(strategy.space)(asked))
    assert seeded == [True] * 17 + [False] * 11  # three quarters of 23


def test_the_first_genome_is_the_original_and_the_others_are_cut():
    strategy = strategy_of()
    assert (strategy.generation, strategy.ids) == (1, range(9))
    first = strategy.ask()
    assert first[0].all() and not first[1:].all(axis=1).any()
    assert np.array_equal(first, strategy.ask())
    strategy.tell(*toy(strategy.space)(first))
    assert (strategy.generation, strategy.ids) == (2, range(9, 15))


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(0, 2**32),
    st.integers(1, 3),
)
def test_small_spaces_are_searched_without_a_fault(sizes, offspring, generations, bins, seed, multiple):
    space = chained(sizes, units=range(0, len(sizes), 2), multiple=multiple)
    least = float(space.price(space.repaired(~space.full())[None])[0] / space.price(space.full()[None])[0])
    options = {"offspring": offspring, "generations": generations, "bins": bins, "seed": seed}
    if least >= 0.99:
        return
    batches = run(GuidedStrategy(space, low=max(least, 0.001) * 0.9, high=1.0, **options))
    assert [len(batch) for batch in batches] == [3 + offspring] + [offspring] * (generations - 1)
    for genome in np.concatenate(batches):
        assert np.array_equal(space.repaired(genome), genome)


def test_the_same_seed_leads_through_the_same_genomes_and_another_through_others():
    first, again, other = (np.concatenate(run(strategy_of(seed=seed))) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_told_the_same_again_it_goes_on_as_if_never_stopped():
    whole = strategy_of(generations=6)
    answer = toy(whole.space)
    batches = run(whole)
    stopped = strategy_of(generations=6)
    for generation in range(3):
        origins = stopped.origins  # may be asked for before the genomes, as often as one likes
        assert np.array_equal(stopped.ask(), batches[generation]) and stopped.origins == origins
        stopped.tell(*answer(stopped.ask()))
    resumed = strategy_of(generations=6)
    for batch in batches[:3]:
        assert np.array_equal(resumed.ask(), batch)
        resumed.tell(*answer(batch))
    for one in (stopped, resumed):
        rest = run(one)
        assert all(np.array_equal(a, b) for a, b in zip(rest, batches[3:], strict=True))
        assert [pick.id for pick in one.picks] == [pick.id for pick in whole.picks]


def test_rows_of_nan_never_enter():
    strategy = strategy_of(generations=10)
    answer = toy(strategy.space)
    failed: set[int] = set()

    def some_fail(genomes: np.ndarray) -> Told:
        told, _ = answer(genomes)
        missing = [row for row, number in enumerate(strategy.ids) if number % 3 == 0]
        failed.update(strategy.ids[row] for row in missing)
        told[missing] = np.nan
        return told, told[:, 0]

    parents: set[int] = set()
    while not strategy.done:
        parents |= {parent for origin in strategy.origins for parent in origin.parents}
        strategy.tell(*some_fail(strategy.ask()))
        assert not failed & {individual.id for individual in strategy.population}
        assert not failed & {pick.id for pick in strategy.picks}
    assert 0 in failed and len(failed) == 21 and parents and not failed & parents


def test_a_score_that_is_nan_does_not_enter_either():
    strategy = strategy_of(generations=1)
    told, _ = toy(strategy.space)(strategy.ask())
    scores = told[:, 0].copy()
    scores[::2] = np.nan
    strategy.tell(told, scores)
    assert {individual.id % 2 for individual in strategy.population} == {1}


def test_where_nothing_can_be_selected_the_same_can_be_told_again():
    strategy = strategy_of()
    genomes = strategy.ask()
    told, _ = toy(strategy.space)(genomes)
    with pytest.raises(InputError, match="none of the 9 genomes of generation 1 has objectives"):
        strategy.tell(np.full((9, 2), np.nan))
    outside = told.copy()
    outside[:, 1] = 1.0  # as dear as the original, all of them
    with pytest.raises(InputError, match="no genome of generation 1 lies within 15% to 85% of the original"):
        strategy.tell(outside)
    with pytest.raises(InputError, match="nothing is selected before a generation is told"):
        _ = strategy.picks
    assert np.array_equal(strategy.ask(), genomes)
    strategy.tell(told)
    untroubled = strategy_of()
    untroubled.ask()
    untroubled.tell(told)
    assert [one.id for one in strategy.population] == [one.id for one in untroubled.population]


@pytest.mark.parametrize("cost", [0.0, -3.0])
def test_an_original_that_costs_nothing_is_refused(cost):
    strategy = strategy_of()
    told, _ = toy(strategy.space)(strategy.ask())
    told[0, 1] = cost
    with pytest.raises(InputError, match=f"the original costs {cost:g}, .* second objective above 0"):
        strategy.tell(told)


def test_an_original_that_failed_is_stood_in_for_by_the_costliest():
    strategy = strategy_of(generations=2, high=1.0)
    told, _ = toy(strategy.space)(strategy.ask())
    told[0] = np.nan
    strategy.tell(told)
    costliest = max(strategy.population, key=lambda individual: individual.cost)
    assert costliest.cost == np.nanmax(told[:, 1])


def test_wrong_shapes_and_calls_out_of_turn_are_refused():
    strategy = strategy_of(generations=1)
    with pytest.raises(InputError, match="call ask first"):
        strategy.tell(np.zeros((9, 2)))
    genomes = strategy.ask()
    with pytest.raises(InputError, match=r"objectives must have shape \(9, 2\).*got \(8, 2\)"):
        strategy.tell(np.zeros((8, 2)))
    with pytest.raises(InputError, match=r"scores must have shape \(9,\), got \(9, 1\)"):
        strategy.tell(np.zeros((9, 2)), np.zeros((9, 1)))
    strategy.tell(*toy(strategy.space)(genomes))
    with pytest.raises(InputError, match="the search is over after 1 generations"):
        strategy.ask()
    for name in ("offspring", "generations"):
        with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
            strategy_of(**{name: 0})


def test_seeds_are_every_order_and_mixtures_of_depth_at_the_shares_asked_for():
    space = space_of(units=(3, 1, 4, 2))
    shares = [0.2, 0.3, 0.45, 0.6, 0.8]
    whole = float(space.price(space.full()[None])[0])
    found = list(seeds(space, shares))
    made_by = {seed.operator for seed in found}
    orders = ("first", "second", "third")
    assert made_by >= {*orders, *(f"{order} anywhere" for order in orders)}
    assert made_by >= {"first, 1 units less", "first, 2 units less", "second, 1 units less"}
    assert len({seed.genome.tobytes() for seed in found}) == len(found)
    for seed in found:
        spent = float(space.price(seed.genome[None])[0]) / whole
        assert any(0.8 * share <= spent <= 1.05 * share for share in shares)
        if "less" in seed.operator:
            count = int(seed.operator.split()[1])
            assert sorted(space.gone(seed.genome)) == sorted(space.units[:count])
        elif "anywhere" not in seed.operator:
            assert space.gone(seed.genome) == []
            assert any(
                np.array_equal(seed.genome, space.uniform(share * whole, seed.operator)) for share in shares
            )


def test_without_units_there_are_no_mixtures():
    assert {seed.operator for seed in seeds(space_of(units=()), [0.2, 0.5])} == {
        f"{order}{where}" for order in ("first", "second", "third") for where in ("", " anywhere")
    }


def test_the_search_begins_with_the_seeds_and_gives_them_three_quarters_of_its_evaluations():
    strategy = strategy_of(generations=12, offspring=5)
    expected = [seed.genome for seed in seeds(strategy.space, [strategy.archive.top(n) for n in range(8)])]
    origins = []
    genomes = []
    while not strategy.done:
        origins += strategy.origins
        genomes += list(strategy.ask())
        strategy.tell(*toy(strategy.space)(strategy.ask()))
    assert origins[0].operator == "original"
    seeded = [row for row, origin in enumerate(origins) if not origin.parents]
    assert seeded == list(range(min(strategy.evaluations * 3 // 4, 1 + len(expected))))
    assert all(np.array_equal(genomes[row], expected[row - 1]) for row in seeded[1:])


def test_no_bin_holds_anything_worse_than_a_seed_that_fell_into_it():
    strategy = strategy_of(generations=12)
    seen: list[tuple[float, float]] = []
    while not strategy.done:
        told, _ = toy(strategy.space)(strategy.ask())
        seen += [(*row,) for row, origin in zip(told, strategy.origins, strict=True) if not origin.parents]
        strategy.tell(told)
    whole = seen[0][1]
    held = {strategy.archive.bin(one.cost / whole): one.error for one in strategy.population}
    bins = [(strategy.archive.bin(cost / whole), error) for error, cost in seen[1:]]
    assert len(bins) > 20
    assert all(held[number] <= error for number, error in bins if number is not None)
    assert any(held[number] < error for number, error in bins if number is not None)


def test_origins_name_operators_and_parents_that_are_in_the_archive():
    strategy = strategy_of(generations=12)
    used: set[str] = set()
    while not strategy.done:
        held = {individual.id for individual in strategy.population}
        for origin in strategy.origins:
            if origin.parents:
                used.add(origin.operator)
                assert origin.operator in OPERATORS
                assert len(origin.parents) == (2 if origin.operator == "cross" else 1)
                assert set(origin.parents) <= held
        assert len(strategy.origins) == len(strategy.ids)
        strategy.tell(*toy(strategy.space)(strategy.ask()))
    assert len(used) >= 5


def test_no_genome_is_asked_for_twice():
    genomes = np.concatenate(run(strategy_of(generations=10, offspring=10)))
    assert len(np.unique(genomes, axis=0)) == len(genomes) == 103


def test_what_is_selected_on_is_the_score_and_the_picks_are_by_the_error():
    strategy = strategy_of(generations=4)
    answer = toy(strategy.space)
    best: dict[int, tuple[float, int]] = {}

    def scored(genomes: np.ndarray) -> Told:
        told, _ = answer(genomes)
        scores = 10.0 - told[:, 0]  # the very opposite of the error
        whole = strategy.space.price(strategy.space.full()[None])[0]
        for number, score, cost in zip(strategy.ids, scores, told[:, 1], strict=True):
            place = strategy.archive.bin(cost / whole)
            if place is not None and score < best.get(place, (np.inf, 0))[0]:
                best[place] = (score, number)
        return told, scores

    run(strategy, scored)
    assert {one.id for one in strategy.population} == {number for _, number in best.values()}
    assert strategy.picks.heavy.error == min(one.error for one in strategy.population)


def test_picks_are_the_papers_but_costs_within_a_hundredth_are_alike_for_light():
    strategy = strategy_of(bins=10_000, low=0.1, high=1.0)
    strategy.ask()
    told = np.full((9, 2), np.nan)
    told[0] = 0.0, 1000.0  # the original, which is no pick
    told[1:6] = [[0.9, 200.0], [0.5, 201.9], [0.4, 202.1], [0.1, 400.0], [0.05, 900.0]]
    strategy.tell(told)
    assert len(strategy.population) == 5
    by_paper = select(np.array([one.objectives for one in strategy.population]))
    assert strategy.picks.light.objectives == (0.5, 201.9)  # 202.1 is more than a hundredth above 200
    assert strategy.picks.knee is strategy.population[by_paper.knee]
    assert strategy.picks.heavy is strategy.population[by_paper.heavy]
    assert strategy.picks.heavy.objectives == (0.05, 900.0)
    assert strategy.population[by_paper.light].objectives == (0.9, 200.0)


@pytest.mark.parametrize(
    ("scores", "heavy"),
    [
        (None, 300.0),  # nothing tells them apart: the cheapest of them
        ([0.9, 0.05, 0.02, 0.03], 600.0),
        ([0.9, 0.05, 0.05, 0.05], 300.0),
        ([0.001, 0.05, 0.02, 0.03], 600.0),  # a score that is better does not make up for an error
    ],
)
def test_heavy_is_the_most_accurate_by_the_score_where_errors_are_equal(scores, heavy):
    strategy = strategy_of(bins=10_000, low=0.1, high=1.0)
    strategy.ask()
    told, judged = np.full((9, 2), np.nan), np.full(9, np.nan)
    told[0], judged[0] = (0.0, 1000.0), 0.0
    told[1:5] = [[0.2, 200.0], [0.0, 300.0], [0.0, 600.0], [0.0, 800.0]]
    judged[1:5] = scores or told[1:5, 0]
    strategy.tell(told, judged)
    assert strategy.picks.heavy.objectives == (0.0, heavy)
    assert strategy.picks.knee.objectives == (0.0, 300.0)


def test_a_range_that_ends_below_the_least_is_refused_with_the_least():
    space = chained((4, 4, 4), least=3)
    least = float(space.price(space.repaired(~space.full())[None])[0] / space.price(space.full()[None])[0])
    assert 0.5 < least < 0.7
    with pytest.raises(InputError, match=rf"ends at 40% .* cannot be cut below {least:.1%}: raise its end"):
        strategy_of(space, low=0.1, high=0.4)
    strategy_of(space, low=0.1, high=least + 0.01)


@pytest.mark.parametrize("scores", [(1.0, 9.0), (0.0, 0.0), (-2.0, 4.0), (np.inf, 1.0)])
def test_more_offspring_are_made_where_there_is_most_to_gain(scores):
    strategy, rng = strategy_of(offspring=5, generations=4, bins=4), np.random.default_rng(0)
    for place, score in zip((0, 3), scores, strict=True):
        strategy.archive.add(None, score=score, share=strategy.archive.top(place))
    drawn = np.bincount([strategy._drawn_bin(rng) for _ in range(4000)], minlength=4) / 4000
    gain = np.maximum(scores, 0.0)
    shares = gain / gain.sum() if 0 < gain.sum() < np.inf else None
    wanted = [0.25] * 4 if shares is None else [0.125 + share / 2 for share in (shares[0], 0, 0, shares[1])]
    assert drawn == pytest.approx(wanted, abs=0.04)


@pytest.mark.parametrize(
    "power", [0.5, pytest.param(1.0, marks=pytest.mark.slow), pytest.param(2.0, marks=pytest.mark.slow)]
)
def test_costs_that_are_not_the_price_are_steered(power):
    """Offspring come close to the bins they are made for, although what they will cost is not known."""
    strategy = strategy_of(generations=24, bins=6, low=0.4, high=0.9)
    space = strategy.space

    def measured(genomes: np.ndarray) -> Told:
        return np.stack([lost(space, genomes), 2.0 * space.price(genomes) ** power], axis=1), None

    inside, total = 0, 0
    while not strategy.done:
        told, _ = measured(strategy.ask())
        bred = [row for row, origin in enumerate(strategy.origins) if origin.parents]
        whole = 2.0 * float(space.price(space.full()[None])[0]) ** power
        inside += sum(strategy.archive.bin(told[row, 1] / whole) is not None for row in bred)
        total += len(bred)
        strategy.tell(told)
    assert len(strategy.archive) == 6  # every bin is filled
    assert total > 50 and inside > 0.85 * total


def random_widths(space: Space, count: int, seed: int, bins: int) -> dict[int, float]:
    """The least error in each bin, of as many genomes with widths at random, spread over the range."""
    rng = np.random.default_rng(seed)
    archive: Archive[int] = Archive(low=0.15, high=0.85, bins=bins)
    whole = float(space.price(space.full()[None])[0])
    least: dict[int, float] = {}
    for number in range(count):
        genome, order = space.full(), space.orders[int(rng.integers(len(space.orders)))]
        for group, size in enumerate(space.sizes):
            genome = space.resize(genome, group, int(rng.integers(1, size + 1)), order)
        genome = space.fit(genome, whole * archive.top(number % bins), order)
        place = archive.bin(float(space.price(genome[None])[0]) / whole)
        if place is not None:
            least[place] = min(least.get(place, np.inf), float(lost(space, genome[None])[0]))
    return least


@pytest.mark.slow
def test_it_beats_random_widths_where_widths_matter():
    bins, found = 8, []
    for seed in range(3):
        strategy = strategy_of(generations=10, offspring=10, bins=bins, seed=seed)
        run(strategy)
        whole = float(strategy.space.price(strategy.space.full()[None])[0])
        guided = {strategy.archive.bin(one.cost / whole): one.error for one in strategy.population}
        by_chance = random_widths(strategy.space, strategy.evaluations, seed, bins)
        assert guided.keys() == by_chance.keys() == set(range(bins))
        found.append([np.mean(list(errors.values())) for errors in (guided, by_chance)])
    means = np.mean(found, axis=0)
    assert all(guided < by_chance for guided, by_chance in found)
    assert means[0] < 0.8 * means[1]
