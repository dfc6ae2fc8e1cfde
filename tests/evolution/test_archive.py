"""The archive: which bin a cost belongs to, who is kept in it, and who is near."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeppruning.errors import InputError
from deeppruning.evolution.archive import Archive

ranges = st.tuples(st.floats(0.001, 0.9), st.floats(1.01, 50.0)).map(
    lambda pair: (pair[0], pair[0] * pair[1])
)
shares = st.floats(1e-4, 100.0)


def filled(*entries: tuple[str, float, float], bins: int = 4) -> Archive[str]:
    """An archive from a tenth to ten times, to which these were added: name, score, share."""
    archive: Archive[str] = Archive(low=0.1, high=10.0, bins=bins)
    for name, score, share in entries:
        archive.add(name, score=score, share=share)
    return archive


def test_bins_grow_by_a_constant_factor_and_end_at_the_range():
    archive = filled()
    tops = [archive.top(number) for number in range(4)]
    assert tops == pytest.approx([math.sqrt(0.1), 1.0, math.sqrt(10.0), 10.0], rel=1e-12)
    assert [archive.bin(share) for share in (0.1, 0.3, 0.4, 0.9, 3.0, 5.0, 10.0)] == [0, 0, 1, 1, 2, 3, 3]
    assert [archive.bin(share) for share in (0.0999, 10.001, 0.0, -1.0, math.nan, math.inf)] == [None] * 6


@settings(max_examples=40, deadline=None)
@given(ranges, st.integers(1, 40), shares)
def test_a_share_lies_between_the_tops_of_its_bin_and_the_one_before(ends, bins, share):
    archive: Archive[int] = Archive(low=ends[0], high=ends[1], bins=bins)
    number = archive.bin(share)
    assert (number is None) == (not ends[0] <= share <= ends[1])
    if number is not None:
        below = archive.top(number - 1) if number else 0.0
        assert below < share <= archive.top(number) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(ranges, st.integers(1, 40))
def test_what_is_made_for_the_top_of_a_bin_belongs_to_it(ends, bins):
    archive: Archive[int] = Archive(low=ends[0], high=ends[1], bins=bins)
    tops = [archive.top(number) for number in range(bins)]
    assert tops == sorted(tops)
    inside = [number for number in range(bins) if tops[number] <= ends[1]]
    assert len(inside) >= bins - 1  # the last one may be rounded to just above the range
    assert [archive.bin(tops[number]) for number in inside] == inside
    assert archive.bin(ends[1]) == bins - 1 and archive.bin(ends[0]) == 0


def test_the_better_one_replaces_and_an_equal_one_does_not():
    archive = filled()
    assert archive.add("first", score=2.0, share=0.5)
    assert not archive.add("equal", score=2.0, share=0.6)
    assert not archive.add("worse", score=3.0, share=0.4)
    assert list(archive) == ["first"]
    assert archive.add("better", score=1.0, share=0.9)
    assert list(archive) == ["better"] and len(archive) == 1
    assert not archive.add("outside", score=0.0, share=11.0)
    assert archive.add("dear", score=9.0, share=9.0)
    assert archive.add("cheap", score=9.0, share=0.1)
    assert list(archive) == ["cheap", "better", "dear"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), shares), max_size=60), st.integers(1, 12))
def test_each_bin_holds_the_first_of_the_best_that_were_added(entries, bins):
    archive: Archive[int] = Archive(low=0.1, high=10.0, bins=bins)
    best: dict[int, tuple[int, int]] = {}
    for place, (score, share) in enumerate(entries):
        number = archive.bin(share)
        entered = archive.add(place, score=score, share=share)
        if number is not None:
            assert entered == (number not in best or score < best[number][0])
            best[number] = min(best.get(number, (score, place)), (score, place))
        else:
            assert not entered
    assert list(archive) == [best[number][1] for number in sorted(best)]


def test_near_are_those_within_reach_or_else_the_nearest():
    archive = filled(("a", 1.0, 0.1), ("c", 1.0, 3.0), ("d", 1.0, 10.0))  # in bins 0, 2 and 3
    assert archive.near(0, 0) == ["a"]
    assert archive.near(0, 1) == ["a"]
    assert archive.near(1, 1) == ["a", "c"]
    assert archive.near(1, 2) == ["a", "c", "d"]
    assert archive.near(1, 0) == ["a", "c"]  # nobody in its own bin: both neighbours
    assert filled(("d", 1.0, 10.0)).near(0, 1) == ["d"]
    assert filled().near(0, 3) == []


@pytest.mark.parametrize(
    ("low", "high", "bins", "message"),
    [
        (0.0, 0.5, 4, "must rise from above 0, got 0.0 to 0.5"),
        (0.5, 0.5, 4, "must rise from above 0, got 0.5 to 0.5"),
        (0.5, math.inf, 4, "must rise from above 0"),
        (0.1, 0.5, 0, "at least 1 bin, got 0"),
    ],
)
def test_a_range_that_is_none_is_refused(low, high, bins, message):
    with pytest.raises(InputError, match=message):
        Archive(low=low, high=high, bins=bins)
