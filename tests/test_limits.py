"""Limits as people write them: on the command line, in Python and in a run's options."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deeppruning.errors import InputError
from deeppruning.limits import Limits


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("flops=40%", "flops", 0.4),
        ("flops=0.4", "flops", 0.4),
        ("flops=100%", "flops", 1.0),
        ("flops=101", "flops", 101.0),
        ("params=0.057k", "params", 57.0),
        ("size=40B", "size", 40.0),
        ("flops=40M", "flops", 40e6),
        ("params=30%", "params", 0.3),
        ("params=100000", "params", 100_000),
        ("params=100_000", "params", 100_000),
        ("params=100k", "params", 100_000),
        ("params=1.5e5", "params", 150_000),
        ("size=1MB", "size", 1e6),
        ("size=1 MiB", "size", 2.0**20),
        ("size=50%", "size", 0.5),
        ("size=4096", "size", 4096),
        ("latency=5ms", "latency", 0.005),
        ("latency=.25s", "latency", 0.25),
        ("error=8%", "error", 0.08),
        ("error=0.08", "error", 0.08),
        ("error=0%", "error", 0.0),
        ("error=+1%", "worse", 0.01),
        ("error=+0.01", "worse", 0.01),
    ],
)
def test_what_people_write_is_read(text, field, value):
    limits = Limits.parse([text])
    assert getattr(limits, field) == pytest.approx(value)
    assert limits == Limits(**{field: getattr(limits, field)})
    name, _, written = text.partition("=")
    assert Limits.of({name: written}) == limits == Limits.of(text) == Limits.of(limits.to_table())


def test_sizes_are_told_in_the_unit_that_suits_them():
    told = {
        "1MB": "1MB",
        "200kB": "200kB",
        "1.5MB": "1.5MB",
        "4096": "4.096kB",
        "123456789": "123456789B",
        "1MiB": "1048576B",
    }
    assert {text: Limits.of({"size": text}).to_table()["size"] for text in told} == told


def test_several_at_once_and_numbers_from_python():
    both = Limits.parse(["flops=40%", "error=+1%, latency=5ms"])
    assert both == Limits(flops=0.4, worse=0.01, latency=0.005)
    assert both == Limits.of({"flops": 0.4, "error": "+1%", "latency": "5ms"}) == Limits.of(both)
    assert Limits.of({"flops": 1.0}) == Limits(flops=1.0)  # of a float it is plain that it is a share
    assert Limits.of({"params": 100_000, "error": 0.08}) == Limits(params=100_000, error=0.08)
    assert not Limits.of(None) and not Limits.of({}) and both
    assert both.objective == "latency" and Limits.of("error=8%").objective is None
    assert Limits.of("size=1MB,params=30%").objective == "params"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("flops=140%", "at most at 100 %; write for example flops=40%"),
        ("flops=0%", "above 0 %"),
        ("flops=-1", "not a number"),
        ("flops=nan", "not a number"),
        ("flops=inf", "not a number"),
        ("flops=", "not a number"),
        ("flops=1.4", r"flops=1.4' has no unit: 1.4% or 1.4M\? Write for example flops=40%"),
        ("flops=101.5", "a number above 1 is a count"),
        ("flops=40", r"flops=40' has no unit: 40% or 40M\?"),
        ("params=100", r"100% or 100k\?"),
        ("size=1", r"size=1' has no unit: 1% or 1MB\?"),
        ("flops=+40%", "only an error"),
        ("flops=3MB", "mb is not a unit"),
        ("speed=3", "unknown target 'speed'"),
        ("error=abc", r"write for example error=\+1%"),
        ("error=8", r"error=8' has no unit: 8%\?"),
        ("error=+1", r"no unit: \+1%\?"),
        ("error=120%", "at most at 100 %"),
        ("latency=5", r"no unit: 5ms\?"),
        ("latency=0ms", "above 0"),
        ("40%", "is not name=limit"),
        ("flops=40%,flops=30%", "given twice"),
        ("error=8%,error=+1%", "given twice"),
    ],
)
def test_nonsense_is_told_with_what_to_write(text, told):
    with pytest.raises(InputError, match=told):
        Limits.parse([text])


@pytest.mark.parametrize("value", [True, None, [0.4], math.nan, -0.4, 40, 40.0, 1])
def test_values_that_are_no_limits_are_refused(value):
    with pytest.raises(InputError, match=r"target (flops|'flops)"):
        Limits.of({"flops": value})


@example(share=1, count=2, size=999.9999999999999, seconds=1.0, error=0, relative=False)
@given(
    st.integers(1, 10_000),
    st.integers(2, 10**9),
    st.floats(2, 1e12),
    st.floats(1e-6, 1e3),
    st.integers(0, 10_000),
    st.booleans(),
)
def test_what_is_written_down_is_read_back(share, count, size, seconds, error, relative):
    errs = {"worse" if relative else "error": error / 10_000}
    limits = Limits(flops=share / 10_000, params=count, size=size, latency=seconds, **errs)
    again = Limits.of(limits.to_table())
    assert again.to_table() == limits.to_table() and Limits.parse([str(limits)]) == again
    for name in ("flops", "params", "size", "latency", *errs):
        assert getattr(again, name) == pytest.approx(getattr(limits, name), rel=1e-11)


def test_limits_of_an_original():
    limits = Limits.of("flops=40%,params=1000,size=50%,error=+1%")
    whole = {"flops": 1000, "params": 4000, "size": 3000}
    assert limits.most(whole) == {"flops": 400.0, "params": 1000.0, "size": 1500.0}
    assert limits.most_error(0.05) == pytest.approx(0.06)
    assert Limits.of("error=8%").most_error(0.05) == 0.08
    assert Limits().most_error(0.05) == math.inf
