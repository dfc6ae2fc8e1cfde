"""How often calls are made to be timed."""

import pytest

from deeppruning.latency import timing
from deeppruning.latency.timing import RUNS, TURNS, in_turns


@pytest.mark.parametrize("turns", [1, 3])
def test_calls_take_turns_as_often_as_asked(turns: int) -> None:
    called: list[str] = []
    found = in_turns([lambda: called.append("a"), lambda: called.append("b")], turns)
    assert called == (["a"] * RUNS + ["b"] * RUNS) * turns
    assert len(found) == 2
    assert all(seconds > 0 for seconds in found)


def test_turns_of_short_calls_go_on_until_a_busy_moment_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock) / 1000)  # a call takes 1 ms
    called: list[int] = []
    in_turns([lambda: called.append(1)])
    turn = (2 * RUNS + 1) / 1000  # each call looks at the clock twice, each turn once
    assert len(called) > RUNS * TURNS
    assert len(called) == pytest.approx(RUNS * timing.SHORTEST / turn, abs=2 * RUNS)
