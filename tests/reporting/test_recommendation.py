"""Which network to take: a table of cases, each with the sentence that people read."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeppruning.reporting.chance import are_alike, chance_of, wilson
from deeppruning.reporting.recommendation import recommend

SAVED = {"heavy": 0.4, "knee": 0.7, "light": 0.85, "target": 0.6}


def facts(original: float | None = 0.0111, images: int | None = 360, **picks: Any) -> dict[str, Any]:
    """Facts of a finished run whose picks have these test errors, or these figures."""
    kept: dict[str, Any] = {
        "finished": True,
        "original": {"test_error": original, "train_error": 0.0, "flops": 1000, "params": 9},
        "test_images": images,
    }
    for place, (role, given_) in enumerate(picks.items()):
        figures = given_ if isinstance(given_, dict) else {"test_error": given_}
        usual = {"id": place, "train_error": 0.02, "flops_pruned": SAVED.get(role, 0.5), "params": 5}
        kept[f"solution/{role.replace('_', '-')}"] = {**usual, **figures}
    return kept


def guessing(kept: dict[str, Any]) -> dict[str, Any]:
    """The same of a run whose original is no better than guessing."""
    return {**kept, "original": {**kept["original"], "doubt": "WARNING: it guesses."}}


def target(asked: str, role: str = "target", *, met: bool = True) -> dict[str, Any]:
    """What a run keeps of limits that were asked for."""
    return {role: {"asked": asked, "id": 3, "met": met, "note": "as it is"}}


def benched(**figures: Any) -> dict[str, Any]:
    """What `bench` keeps of an original of 8 ms and a network of 2 ms in each of these roles."""
    timings = {"original": {"median": 8.0, "runs": 7}}
    timings |= {role: {"median": 2.0, "runs": 7, **found} for role, found in figures.items()}
    return {"bench": {"networks": {role: {"latency_ms": {"a batch": one}} for role, one in timings.items()}}}


FAILED = {"test_error": None, "failure": "the loss is nan"}
LATENCIES = {"original": 0.02, "heavy": 0.0205, "knee": 0.01, "light": 0.03}


@pytest.mark.parametrize(
    ("kept", "role", "words"),
    [
        pytest.param(
            facts(heavy=0.0111, knee=0.0056, light=0.0111), "light",
            "Take light: it saves 85.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images).",
            id="all alike: the cheapest",
        ),
        pytest.param(
            facts(original=0.0056, heavy=0.0111, knee=0.0111, light=0.1), "knee",
            "Take knee: it saves 70.0 % of the FLOPs at a test error that differs from the original's by "
            "no more than chance (1.11 % against 0.56 %: 4 and 2 of 360 images); light saves 85.0 % for "
            "8.89 points more.",
            id="2 and 4 of 360 images are the same",
        ),
        pytest.param(
            facts(original=0.0661, images=10_000, heavy=0.0667, knee=0.1019, light=0.2675), "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs at a test error that differs from the original's by "
            "no more than chance (6.67 % against 6.61 %: 667 and 661 of 10,000 images); knee saves 70.0 % "
            "for 3.52 points more.",
            id="only heavy loses nothing",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy={"test_error": 0.05, "flops_pruned": 0.63}, knee=0.058,
                  light=0.2), "heavy",
            "Take heavy: it saves 63.0 % of the FLOPs at the test error of the original (5.00 % against "
            "5.00 %: 500 and 500 of 10,000 images); knee saves 70.0 % for 0.80 points more.",
            id="heavy saves nearly as much at no loss",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.05, knee=0.058, light=0.2), "knee",
            "Take knee: it saves 70.0 % of the FLOPs for 0.80 points more test error than the original "
            "(5.80 % against 5.00 %: 580 and 500 of 10,000 images); light saves 85.0 % for 14.20 points "
            "more.",
            id="a small loss for much more saved",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.09, knee=0.0905, light=0.2), "knee",
            "Take knee: it saves 70.0 % of the FLOPs for 4.05 points more test error than the original "
            "(9.05 % against 5.00 %: 905 and 500 of 10,000 images); light saves 85.0 % for 10.95 points "
            "more.",
            id="all lose: knee cannot be told from heavy",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.09, knee=0.12, light=0.2), "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs for 4.00 points more test error than the original "
            "(9.00 % against 5.00 %: 900 and 500 of 10,000 images); knee saves 70.0 % for 3.00 points "
            "more.",
            id="all lose much: the most accurate",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0333, light=0.1, target=0.0167) | target("flops=40%"), "target",
            "Take target: it is what was asked for and saves 60.0 % of the FLOPs at a test error that "
            "differs from the original's by no more than chance (1.67 % against 1.11 %: 6 and 4 of 360 "
            "images); knee saves 70.0 % for 1.66 points more.",
            id="a target that is met",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.0111, target=0.0167) | target("flops=40%"), "light",
            "Take light: it is as good as target in all that was asked for (flops=40%) and saves 85.0 % of "
            "the FLOPs at the test error of the original (1.11 % against 1.11 %: 4 and 4 of 360 images).",
            id="a pick is better than the target in error and FLOPs",
        ),
        pytest.param(
            facts(heavy=0.0111, knee={"test_error": 0.0111, "params": 6}, light=0.1, target=0.0111)
            | target("params=60%"), "target",
            "Take target: it is what was asked for and saves 60.0 % of the FLOPs at the test error of the "
            "original (1.11 % against 1.11 %: 4 and 4 of 360 images); light saves 85.0 % for 8.89 points "
            "more.",
            id="a pick that would be better breaks the limit",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.4, light=0.5, target=0.3, target_2=0.05)
            | target("flops=20%") | target("flops=50%", "target-2"), "target-2",
            "Take target-2: it is what was asked for and saves 50.0 % of the FLOPs for 3.89 points more test "
            "error than the original (5.00 % against 1.11 %: 18 and 4 of 360 images); target saves 60.0 % "
            "for 25.00 points more.",
            id="the better of two targets",
        ),
        pytest.param(
            {**facts(heavy=0.0111, light=0.5, target=0.3), **target("error=2%", met=False)},
            "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images); target saves 60.0 % for 28.89 points more.",
            id="a target that is missed",
        ),
        pytest.param(
            facts(original=None, heavy=None, knee=None, light=None), None,
            "There is no test set to choose by: knee, the bargain of the search, saves 70.0 % of the "
            "FLOPs at an error of 2.00 % in the search.",
            id="no test set",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=FAILED, light=FAILED), "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images); the fine-tuning of knee and light failed.",
            id="failed picks",
        ),
        pytest.param(
            facts(heavy={"id": 3, "test_error": 0.0111, "flops_pruned": 0.7},
                  knee={"id": 3, "test_error": 0.0111}, light=0.3), "heavy",
            "Take heavy (also the knee): it saves 70.0 % of the FLOPs at the test error of the original "
            "(1.11 % against 1.11 %: 4 and 4 of 360 images); light saves 85.0 % for 28.89 points more.",
            id="identical picks",
        ),
        pytest.param(
            facts(images=None, heavy=0.0111, knee=0.02, light=0.4), "knee",
            "Take knee: it saves 70.0 % of the FLOPs for 0.89 points more test error than the original "
            "(2.00 % against 1.11 %); light saves 85.0 % for 38.00 points more.",
            id="size of the test set unknown",
        ),
        pytest.param(
            facts(original=None, heavy=0.0111, knee=0.0111, light=0.4), "knee",
            "Take knee: it saves 70.0 % of the FLOPs at a test error of 1.11 % (4 of 360 images); light "
            "saves 85.0 % for 38.89 points more.",
            id="the original's test failed",
        ),
        pytest.param(
            facts(original=2.5, images=None, heavy=2.5, knee=2.6, light=4.0), "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs at the test error of the original (2.5 against "
            "2.5); knee saves 70.0 % at 2.6.",
            id="a figure of one's own task",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.3, light=0.3) | {"latency_batch_1": LATENCIES}, "heavy",
            "Take heavy: it saves 40.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images), though it is measured no faster (20.5 ms against 20 ms); "
            "knee saves 70.0 % for 28.89 points more.",
            id="not faster",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.3)
            | {"bench": {"networks": {name: {"latency_ms": {"PyTorch, batch 1": {"median": 1000 * value}}}
                                      for name, value in LATENCIES.items()}}}, "knee",
            "Take knee: it saves 70.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images) and is measured 2 times as fast (50 % of the time, as "
            "exported); light saves 85.0 % for 28.89 points more.",
            id="faster",
        ),
        pytest.param(
            facts(knee=0.0111) | {"latency_batch_1": LATENCIES,
                                  "latency_batch_1_loaded": {"original": 0.030, "knee": 0.020}}, "knee",
            "Take knee: it saves 70.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images) and is measured 2 times as fast (50 % of the time, as exported; "
            "1.5 times as loaded).",
            id="both forms",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"speed_low": 1.1, "speed_high": 5.0}), "knee",
            "Take knee: it saves 70.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images), but its speed is uncertain (measured between 1.1 and 5 times as "
            "fast).",
            id="a speed that repeats badly",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"runs": 5}), "knee",
            "Take knee: it saves 70.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images), but its speed is uncertain (measured too few times).",
            id="a speed of few rounds",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"speed_low": 3.9, "speed_high": 4.2}), "knee",
            "Take knee: it saves 70.0 % of the FLOPs at the test error of the original (1.11 % against "
            "1.11 %: 4 and 4 of 360 images) and is measured 4 times as fast (25 % of the time, as exported).",
            id="a speed that repeats well",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.3, light=0.3, candidate_17={"test_error": 0.0111, "id": 17}),
            "candidate-17",
            "Take candidate 17: it saves 50.0 % of the FLOPs at the test error of the original (1.11 % "
            "against 1.11 %: 4 and 4 of 360 images); knee saves 70.0 % for 28.89 points more.",
            id="one fine-tuned on request",
        ),
        pytest.param(
            facts(original=0.0278, heavy={"test_error": 0.0444, "flops_pruned": 0.15}, knee=0.2, light=0.5)
            | {"latency_batch_1": LATENCIES}, None,
            "None of these networks is worth taking; the nearest is heavy: it saves 15.0 % of the FLOPs at a "
            "test error that differs from the original's by no more than chance (4.44 % against 2.78 %: 16 "
            "and 10 of 360 images), though it is measured no faster (20.5 ms against 20 ms); knee saves "
            "70.0 % for 15.56 points more.",
            id="little saved, no faster, over a point worse",
        ),
        pytest.param(
            facts(original=0.0278, heavy={"test_error": 0.0444, "flops_pruned": 0.15}, knee=0.2, light=0.5)
            | {"latency_batch_1": {**LATENCIES, "heavy": 0.01}}, "heavy",
            "Take heavy: it saves 15.0 % of the FLOPs at a test error that differs from the original's by no "
            "more than chance (4.44 % against 2.78 %: 16 and 10 of 360 images) and is measured 2 times as "
            "fast (50 % of the time, as exported); knee saves 70.0 % for 15.56 points more.",
            id="little saved, but twice as fast",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.16, knee=0.3, light=0.4), None,
            "None of these networks is worth taking; the nearest is heavy: it saves 40.0 % of the FLOPs for "
            "11.00 points more test error than the original (16.00 % against 5.00 %: 1600 and 500 of 10,000 "
            "images); knee saves 70.0 % for 14.00 points more.",
            id="all lose more than any saving is worth",
        ),
        pytest.param(
            guessing(facts(original=0.8944, heavy=0.9, knee=0.89, light=0.9)), None,
            "WARNING: it guesses. Until then none of these networks is recommended.",
            id="an original that guesses",
        ),
    ],
)  # fmt: skip
def test_which_to_take(kept: dict[str, Any], role: str | None, words: str) -> None:
    found = recommend(kept)
    assert found is not None
    assert (found.role, found.text) == (role, words)


def test_nothing_is_recommended_before_there_is_something_to_take() -> None:
    assert recommend({}) is None
    assert recommend({**facts(heavy=0.1), "finished": False}) is None
    assert recommend(facts(heavy=FAILED, knee=FAILED, light=FAILED)) is None


def test_nothing_that_is_shown_errs_less_and_costs_less_than_what_is_to_be_taken() -> None:
    draw = Random(0)
    for _ in range(500):
        shown = draw.sample(
            ["heavy", "knee", "light", "target", "target_2", "candidate_7"], draw.randint(1, 6)
        )
        errors = [draw.randint(0, 20) / 360 for _ in shown]
        saved = [draw.choice([0.1, 0.3, 0.45, 0.5, 0.7, 0.9]) for _ in shown]
        picks = {
            role: {"test_error": error, "flops_pruned": share}
            for role, error, share in zip(shown, errors, saved, strict=True)
        }
        asked = draw.choice(["flops=40%", "error=+1%"])
        found = recommend(
            facts(**picks) | target(asked, met=draw.random() < 0.7) | target("flops=90%", "target-2")
        )
        assert found is not None
        if found.none:  # none of them is worth it
            continue
        assert found.role is not None
        taken = picks[found.role.replace("-", "_")]
        better = [
            role
            for role, error, share in zip(shown, errors, saved, strict=True)
            if error <= taken["test_error"]
            and share >= taken["flops_pruned"]
            and (error, share) != (taken["test_error"], taken["flops_pruned"])
        ]
        assert better == [], found.text


counts = st.integers(0, 300)


@given(counts, counts)
def test_chance_is_even_handed_and_falls_with_the_difference(one: int, other: int) -> None:
    assert chance_of(one, other) == chance_of(other, one)
    assert chance_of(one, one) == 1.0
    low, high = sorted((one, other))
    assert 0.0 <= chance_of(low, high + 1) <= chance_of(low, high) + 0.01 <= 1.01


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_interval_holds_what_was_measured(images: int, share: float) -> None:
    wrong = round(share * images)
    low, high = wilson(wrong, images)
    assert 0.0 <= low <= wrong / images + 1e-12
    assert wrong / images - 1e-12 <= high <= 1.0


def test_few_errors_prove_little() -> None:
    assert [are_alike(0, 2), are_alike(0, 3), are_alike(4, 8), are_alike(4, 12)] == [True, False, True, False]
    assert wilson(0, 100) == pytest.approx((0.0, 0.037), abs=5e-4)
