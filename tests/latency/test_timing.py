"""How often calls are made to be timed, and what counts of the time that passes."""

import time

import pytest

from deeppruning.latency import timing
from deeppruning.latency.timing import RUNS, TURNS, in_turns, quickest, time_in_turns


@pytest.mark.parametrize("turns", [1, 3])
def test_calls_take_turns_as_often_as_asked(turns: int) -> None:
    called: list[str] = []
    found = in_turns([lambda: called.append("a"), lambda: called.append("b")], turns)
    first, second = "a" * RUNS + "b" * RUNS, "b" * RUNS + "a" * RUNS
    assert "".join(called) == (first + second + first)[: 2 * RUNS * turns]
    assert len(found) == 2
    assert all(seconds > 0 for seconds in found)


def test_each_call_comes_first_in_turn() -> None:
    calls: list[str] = []
    times = time_in_turns([lambda name=name: calls.append(name) for name in "abc"], 3, fewest=3, seconds=9.0)
    assert "".join(calls) == "abcbcacab"
    assert [len(each) for each in times] == [3, 3, 3]


def test_turns_of_short_calls_go_on_until_a_busy_moment_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock) / 1000)  # a call takes 1 ms
    called: list[int] = []
    in_turns([lambda: called.append(1)])
    turn = (2 * RUNS + 1) / 1000  # each call looks at the clock twice, each turn once
    assert len(called) > RUNS * TURNS
    assert len(called) == pytest.approx(RUNS * timing.SHORTEST / turn, abs=2 * RUNS)


@pytest.mark.skipif(not timing._COUNTS_PROCESSOR_TIME, reason="processor time is counted too coarsely here")
def test_time_in_which_other_programs_have_the_processor_does_not_count() -> None:
    def interrupted() -> None:
        time.sleep(0.03)  # to this process, the same as if others were computing

    assert max(quickest(interrupted), *in_turns([interrupted], 1)) < 0.03
    assert min(quickest(interrupted, on_cpu=False), *in_turns([interrupted], 1, on_cpu=False)) >= 0.03


def test_a_short_call_takes_time_even_where_the_clock_of_the_processor_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing.time, "process_time", lambda: 7.0)
    assert min(quickest(lambda: None), *in_turns([lambda: None, lambda: time.sleep(0.002)], 1)) > 0
