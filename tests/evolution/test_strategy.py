"""The strategy as a whole: what it proposes, what it keeps, and that it can be replayed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.config import SearchConfig
from deeppruning.errors import InputError
from deeppruning.evolution import EvolutionStrategy, flip, recombine


def toy(genomes):
    """Error is the share of the first half that is missing, cost the number of ones.

    The front is known: keep k of the first half and nothing else, error 1 - k/half, cost k. Its corners
    are (0, half) and (1, 0).
    """
    half = genomes.shape[1] // 2
    return np.stack([1 - genomes[:, :half].mean(axis=1), genomes.sum(axis=1)], axis=1).astype(float)


def run(strategy, objective=toy):
    batches = []
    while not strategy.done:
        batches.append(strategy.ask())
        strategy.tell(objective(batches[-1]))
    return batches


def within(count, trials, probability):
    """Whether a binomial count lies within five standard deviations of its mean."""
    return abs(count - trials * probability) <= 5 * np.sqrt(trials * probability * (1 - probability))


def test_a_run_with_the_papers_values_asks_for_203_genomes():
    strategy = EvolutionStrategy(50)
    sizes = [len(batch) for batch in run(strategy)]
    assert sizes == [23] + [20] * 9
    assert sum(sizes) == strategy.evaluations == SearchConfig.paper().evaluations == 203


def test_the_start_is_the_full_network_with_bits_flipped_at_the_mutation_rate():
    first = EvolutionStrategy(5000, mutation=0.1, seed=3).ask()
    assert first.shape == (23, 5000) and first.dtype == np.bool_
    assert within((~first).sum(), first.size, 0.1)
    assert all(within((~genome).sum(), 5000, 0.1) for genome in first)
    assert len(np.unique(first, axis=0)) == 23


def test_offspring_differ_from_one_of_the_three_parents_at_the_mutation_rate():
    strategy = EvolutionStrategy(4000, offspring=60, mutation=0.02)
    strategy.tell(toy(strategy.ask()))
    parents = np.stack([pick.genome for pick in strategy.picks])
    assert len({pick.id for pick in strategy.picks}) == 3
    distance = (strategy.ask()[:, None] != parents[None]).sum(axis=2)
    nearest = distance.argmin(axis=1)
    assert all(within(d, 4000, 0.02) for d in distance.min(axis=1))
    assert all(within((nearest == parent).sum(), 60, 1 / 3) for parent in range(3))


def test_without_mutation_offspring_are_copies_of_the_three():
    strategy = EvolutionStrategy(16, mutation=0.5, offspring=30, generations=2, seed=2)
    strategy.tell(toy(strategy.ask()))
    strategy.mutation = 0.0
    allowed = {pick.genome.tobytes() for pick in strategy.picks}
    assert {genome.tobytes() for genome in strategy.ask()} == allowed


def test_plus_selects_among_parents_and_offspring_comma_among_offspring():
    for selection, later in (("plus", lambda parents: parents | set(range(11, 19))), ("comma", None)):
        strategy = EvolutionStrategy(30, offspring=8, generations=2, selection=selection)
        strategy.tell(toy(strategy.ask()))
        assert [one.id for one in strategy.population] == list(range(11))
        parents = {pick.id for pick in strategy.picks}
        assert strategy.ids == range(11, 19)
        strategy.tell(toy(strategy.ask()))
        expected = later(parents) if later else set(range(11, 19))
        assert [one.id for one in strategy.population] == sorted(expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([0.05, 0.3]), st.integers(1, 3))
def test_plus_never_loses_the_best(seed, offspring, mutation, parents):
    noise = np.random.default_rng(seed)
    strategy = EvolutionStrategy(
        12, offspring=offspring, generations=6, mutation=mutation, parents=parents, seed=seed
    )
    best = np.full(2, np.inf)
    while not strategy.done:
        objectives = noise.random((len(strategy.ask()), 2))
        strategy.tell(objectives)
        best = np.minimum(best, objectives.min(axis=0))
        assert strategy.picks.heavy.objectives[0] == best[0]
        assert strategy.picks.light.objectives[1] == best[1]


def test_comma_forgets_the_best():
    strategy = EvolutionStrategy(6, offspring=3, generations=2, selection="comma")
    strategy.tell(np.array([[0.0, 0.0]] * len(strategy.ask())))
    strategy.ask()
    strategy.tell(np.array([[0.5, 9.0], [0.4, 8.0], [0.6, 7.0]]))
    assert strategy.picks.heavy.objectives == (0.4, 8.0) and strategy.picks.heavy.id == 7
    assert strategy.picks.light.objectives == (0.6, 7.0) and strategy.picks.light.id == 8


def test_plus_finds_both_corners_of_a_known_front():
    strategy = EvolutionStrategy(20, generations=60, seed=5)
    run(strategy)
    assert strategy.picks.heavy.objectives == (0.0, 10.0)
    assert strategy.picks.light.objectives == (1.0, 0.0)
    kept = strategy.picks.knee.genome
    assert kept[10:].sum() == 0  # the knee lies on the front: nothing useless is kept


def test_genes_of_a_recombined_genome_come_from_its_parents_alone():
    rng = np.random.default_rng(0)
    parents = np.eye(3, 3000, dtype=bool) | (rng.random((3, 3000)) < 0.5)
    agreed = (parents == parents[0]).all(axis=0)
    for rho in (1, 2, 3):
        children = recombine(parents, rho, 40, rng)
        assert children.shape == (40, 3000)
        assert (children[:, agreed] == parents[0, agreed]).all()
        same = (children[:, None] == parents[None]).all(axis=2).any(axis=1)
        assert same.all() == (rho == 1)


def test_two_parents_give_half_the_genes_each_and_all_pairs_occur():
    parents = np.array([[1] * 900, [0] * 900, [0] * 900], dtype=bool)
    ones = recombine(parents, 2, 300, np.random.default_rng(1)).sum(axis=1)
    without_the_first = (ones == 0).sum()
    assert within(without_the_first, 300, 1 / 3)
    assert all(within(count, 900, 0.5) for count in ones[ones > 0])


def test_flip_leaves_its_input_alone():
    genomes = np.zeros((5, 7), dtype=bool)
    assert flip(genomes, 1.0, np.random.default_rng(0)).all()
    assert not flip(genomes, 0.0, np.random.default_rng(0)).any()
    assert not genomes.any()


@pytest.mark.parametrize("options", [{}, {"selection": "comma"}, {"parents": 2}])
def test_telling_the_same_objectives_again_leads_through_the_same_genomes(options):
    whole = EvolutionStrategy(40, generations=5, seed=9, **options)
    batches = run(whole)
    replay = EvolutionStrategy(40, generations=5, seed=9, **options)
    for batch in batches:
        assert (replay.ask() == batch).all()
        replay.tell(toy(batch))
    for one, other in zip(whole.picks, replay.picks, strict=True):
        assert one.id == other.id and (one.genome == other.genome).all()
    other_seed = EvolutionStrategy(40, generations=5, seed=10, **options)
    assert (other_seed.ask() != batches[0]).any()


def test_asking_twice_returns_the_same_batch_even_if_the_first_was_changed():
    strategy = EvolutionStrategy(10)
    first = strategy.ask()
    expected = first.copy()
    first[:] = False
    assert (strategy.ask() == expected).all()


def test_repaired_genomes_are_what_is_reported():
    def keep_the_first(genomes):
        genomes[:, 0] = True
        return genomes

    strategy = EvolutionStrategy(6, mutation=0.9, generations=4, repair=keep_the_first)
    for batch in run(strategy):
        assert batch[:, 0].all()
    assert all(pick.genome[0] for pick in strategy.picks)
    broken = EvolutionStrategy(6, repair=lambda genomes: genomes[:, 1:])
    with pytest.raises(InputError, match=r"keep the shape \(23, 6\)"):
        broken.ask()


def test_generation_counts_from_one_and_stays_at_the_last():
    strategy = EvolutionStrategy(5, offspring=3, generations=2)
    seen = []
    while not strategy.done:
        seen.append((strategy.generation, len(strategy.ids)))
        strategy.tell(toy(strategy.ask()))
    assert seen == [(1, 6), (2, 3)]
    assert strategy.generation == 2 and len(strategy.ids) == 0
    assert {one.generation for one in strategy.population} <= {1, 2}
    with pytest.raises(InputError, match="over after 2 generations"):
        strategy.ask()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offspring": 0}, "offspring must be at least 1, got 0"),
        ({"offspring": 2, "selection": "comma"}, "offspring must be at least 3, got 2"),
        ({"mutation": 1.5}, r"mutation must lie in \[0, 1\], got 1.5"),
        ({"selection": "plsu"}, "did you mean plus"),
        ({"parents": 4}, "parents must be 1, 2 or 3"),
        ({"generations": 0}, "generations must be at least 1, got 0"),
    ],
)
def test_options_are_checked_when_the_strategy_is_made(options, message):
    with pytest.raises(InputError, match=message):
        EvolutionStrategy(10, **options)


def test_tell_before_ask_and_wrong_shapes_are_refused():
    strategy = EvolutionStrategy(10)
    with pytest.raises(InputError, match="call ask first"):
        strategy.tell(np.zeros((23, 2)))
    with pytest.raises(InputError, match="nothing is selected before"):
        _ = strategy.picks
    strategy.ask()
    with pytest.raises(InputError, match=r"shape \(23, 2\).*got \(20, 2\)"):
        strategy.tell(np.zeros((20, 2)))
    assert strategy.generation == 1


NOTHING = (np.nan, np.nan)


@pytest.mark.parametrize("selection", ["plus", "comma"])
def test_a_genome_without_objectives_is_never_selected(selection):
    """Errors of about 5 and costs of about 7: any figure made up for it would be among the best or worst."""
    strategy = EvolutionStrategy(12, offspring=6, generations=4, selection=selection)
    while not strategy.done:
        ids = strategy.ids
        values = toy(strategy.ask()) + 5.0
        values[::2] = NOTHING
        strategy.tell(values)
        failed = set(ids[::2])
        assert not {pick.id for pick in strategy.picks} & failed
        assert not {one.id for one in strategy.population} & failed
        assert all(np.isfinite(pick.objectives).all() for pick in strategy.picks)


def test_failures_count_in_no_scale():
    """With the failed row at the cost 1e9 that it used to have, the knee would be the first row."""
    kept = [(0.1, 90.0), (0.2, 30.0), (0.9, 10.0)]
    strategy = EvolutionStrategy(5, offspring=1, generations=1)
    strategy.ask()
    strategy.tell(np.array([kept[0], NOTHING, kept[1], kept[2]]))
    assert [pick.id for pick in strategy.picks] == [2, 0, 3]


def test_one_with_objectives_is_enough_and_none_is_an_error_that_changes_nothing():
    strategy = EvolutionStrategy(5, offspring=3, generations=3)
    asked = strategy.ask()
    with pytest.raises(InputError, match="none of the 6 genomes of generation 1 has objectives"):
        strategy.tell(np.array([NOTHING] * 6))
    assert strategy.generation == 1 and (strategy.ask() == asked).all()
    strategy.tell(np.array([NOTHING] * 4 + [(0.5, 3.0)] + [NOTHING]))
    assert [pick.id for pick in strategy.picks] == [4, 4, 4]
    strategy.ask()
    strategy.tell(np.array([NOTHING] * 3))
    assert [pick.id for pick in strategy.picks] == [4, 4, 4] and strategy.generation == 3


@pytest.mark.parametrize("half", [(0.5, np.nan), (np.nan, 3.0), (np.inf, 3.0), (0.5, -np.inf)])
def test_half_of_the_objectives_is_a_mistake(half):
    strategy = EvolutionStrategy(5, offspring=1)
    strategy.ask()
    with pytest.raises(InputError, match="must be finite"):
        strategy.tell(np.array([(0.5, 1.0)] * 3 + [half]))
