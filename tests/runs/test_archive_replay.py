"""The archive found again from a history is the one that the strategy had, generation by generation."""

import math

import numpy as np
import pytest

from deeppruning.evolution.guided import GuidedStrategy
from deeppruning.runs import Candidate, Evaluation, History
from deeppruning.runs.archive_replay import CostRange, Provenance, Replay, cost_range, replay, sources
from guided_runs import GENERATIONS, RANGE, SEARCH, make_guided_run

WITHIN = CostRange(0.2, 0.8, 2)


def row(
    id_: int,
    generation: int,
    cost: float | None,
    judged: float | None,
    operator: str = "",
    parents: tuple[int, ...] = (),
) -> Candidate:
    """A candidate with these figures; one without them has failed."""
    genome = np.ones(3, dtype=bool)
    status = "ok" if judged is not None else "failed"
    known = Evaluation(genome=genome, error=judged, cost=cost, flops=3, params=3, status=status)
    return Candidate(id_, generation, genome, known, operator, parents)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Candidate], GuidedStrategy]:
    path, strategy = make_guided_run(tmp_path_factory.mktemp("guided") / "run")
    with History(path / "history.sqlite", read_only=True) as history:
        return history.candidates(), strategy


def test_it_is_the_archive_of_the_strategy(made: tuple[list[Candidate], GuidedStrategy]) -> None:
    told, strategy = made
    found = replay(CostRange(**RANGE), reversed(told))
    assert found.front == tuple(one.id for one in strategy.archive)
    assert list(found.fronts) == list(range(1, GENERATIONS + 1))
    assert found.fronts[GENERATIONS] == found.front
    assert all(set(front) <= found.entered for front in found.fronts.values())
    evaluated = [one for one in told if one.cost is not None]
    bred = [row for row in sources(evaluated, found) if not row.name.startswith("seed: ")]
    assert {row.name: row.tried for row in bred} == dict(strategy._operators.tried)
    assert {row.name: row.entered for row in bred if row.entered} == dict(+strategy._operators.successes)


def test_a_generation_under_way_counts_as_far_as_it_is(made: tuple[list[Candidate], GuidedStrategy]) -> None:
    told, _ = made
    whole, part = (replay(CostRange(**RANGE), rows) for rows in (told, told[:20]))
    assert part.fronts[1] == whole.fronts[1]
    assert list(part.fronts) == [1, 2]
    assert part.entered == {one for one in whole.entered if one < 20}


def test_failures_have_no_place_and_the_first_of_equals_stays() -> None:
    told = [
        row(0, 1, 10.0, 0.0),
        row(1, 1, None, None),
        row(2, 1, 5.0, 0.3),
        row(3, 1, 5.0, 0.3),
    ]
    found = replay(WITHIN, told)
    assert (found.front, found.entered) == ((2,), {2})


@pytest.mark.parametrize(
    ("told", "front"),
    [
        ([], ()),
        ([row(1, 1, 5.0, 0.3)], ()),  # what shares are shares of is not known yet
        ([row(0, 1, None, None)], ()),
        ([row(0, 1, None, None), row(1, 1, 5.0, 0.3), row(2, 1, 10.0, 0.1)], (1,)),
        ([row(0, 1, 0.0, 0.1), row(1, 1, 5.0, 0.3)], ()),
        (
            [row(0, 1, 10.0, 0.1), row(1, 1, 1.0, 0.3), row(2, 1, 9.0, 0.3)],
            (),
        ),  # outside the range
    ],
)
def test_the_original_may_be_waiting_or_lost(told: list[Candidate], front: tuple[int, ...]) -> None:
    assert replay(WITHIN, told).front == front


def test_sources_are_counted_operators_first() -> None:
    told = [
        row(0, 1, 10.0, 0.0, "original"),
        row(1, 1, 3.0, 0.5, "l1"),
        row(2, 1, 7.0, 0.2, "l1, 3 units less"),
        row(3, 2, 3.0, 0.6, "cross", (1, 2)),
        row(4, 2, 3.0, 0.4, "cross", (1, 2)),
        row(5, 2, None, None, "widths", (1,)),
    ]
    assert sources(told, replay(WITHIN, told)) == [
        Provenance("cross", 2, 1, 1),
        Provenance("widths", 1, 0, 0),
        Provenance("seed: l1", 2, 2, 1),
    ]
    assert sources([row(0, 1, 1.0, 0.1)], Replay(replay(WITHIN, []).archive, {}, frozenset())) == []


def test_only_guided_runs_have_a_range() -> None:
    assert cost_range(SEARCH) == CostRange(**RANGE)
    assert cost_range({"strategy": "guided"}) == CostRange(0.15, 0.85, 20)
    assert cost_range({"selection": "plus"}) is None
    assert cost_range({"strategy": "paper", "low": 0.1}) is None


def test_the_score_decides_before_the_error() -> None:
    genome = np.ones(3, dtype=bool)
    first = [row(0, 1, 10.0, 0.0), row(1, 1, 5.0, 0.3)]
    known = Evaluation(genome=genome, error=0.5, cost=5.0, flops=3, params=3, score=0.1)
    better = Candidate(2, 2, genome, known, "cross", (0, 1))
    assert replay(WITHIN, [*first, better]).fronts == {1: (1,), 2: (2,)}
    lost = Evaluation(genome=genome, error=None, cost=None, flops=3, params=3, status="failed")
    assert math.isnan(lost.judged)
    assert replay(WITHIN, [*first, Candidate(2, 2, genome, lost)]).front == (1,)
