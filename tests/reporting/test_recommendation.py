"""Which network to take: a table of cases, each with the facts of the sentence that people read."""

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeppruning.reporting.evidence import chance_of, wilson, within_noise
from deeppruning.reporting.recommendation import recommend

# Numbers, roles and what is said of them, in the order of the sentence.
FACT = re.compile(
    r"\d[\d.,]*\d|\d|heavy|knee|light|target-2|target|noise|uncertain|slower|no faster|failed|WARNING"
)
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
    ("kept", "role", "told"),
    [
        pytest.param(
            facts(heavy=0.0111, knee=0.0056, light=0.0111), "light",
            "light 85.0 1.11 1.11 4 4 360",
            id="all alike: the cheapest",
        ),
        pytest.param(
            facts(original=0.0056, heavy=0.0111, knee=0.0111, light=0.1), "knee",
            "knee 70.0 noise 1.11 0.56 4 2 360 light 85.0 8.89",
            id="2 and 4 of 360 images are the same",
        ),
        pytest.param(
            facts(original=0.0661, images=10_000, heavy=0.0667, knee=0.1019, light=0.2675), "heavy",
            "heavy 40.0 noise 6.67 6.61 667 661 10,000 knee 70.0 3.52",
            id="only heavy loses nothing",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy={"test_error": 0.05, "flops_pruned": 0.63}, knee=0.058,
                  light=0.2), "heavy",
            "heavy 63.0 5.00 5.00 500 500 10,000 knee 70.0 0.80",
            id="heavy saves nearly as much at no loss",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.05, knee=0.058, light=0.2), "knee",
            "knee 70.0 0.80 5.80 5.00 580 500 10,000 light 85.0 14.20",
            id="a small loss for much more saved",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.09, knee=0.0905, light=0.2), "knee",
            "knee 70.0 4.05 9.05 5.00 905 500 10,000 light 85.0 10.95",
            id="all lose: knee cannot be told from heavy",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.09, knee=0.12, light=0.2), "heavy",
            "heavy 40.0 4.00 9.00 5.00 900 500 10,000 knee 70.0 3.00",
            id="all lose much: the most accurate",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0333, light=0.1, target=0.0167) | target("flops=40%"), "target",
            "target target 60.0 noise 1.67 1.11 6 4 360 knee 70.0 1.66",
            id="a target that is met",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.0111, target=0.0167) | target("flops=40%"), "light",
            "light target 40 85.0 1.11 1.11 4 4 360",
            id="a pick is better than the target in error and FLOPs",
        ),
        pytest.param(
            facts(heavy=0.0111, knee={"test_error": 0.0111, "params": 6}, light=0.1, target=0.0111)
            | target("params=60%"), "target",
            "target target 60.0 1.11 1.11 4 4 360 light 85.0 8.89",
            id="a pick that would be better breaks the limit",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.4, light=0.5, target=0.3, target_2=0.05)
            | target("flops=20%") | target("flops=50%", "target-2"), "target-2",
            "target-2 target 50.0 3.89 5.00 1.11 18 4 360 target 60.0 25.00",
            id="the better of two targets",
        ),
        pytest.param(
            {**facts(heavy=0.0111, light=0.5, target=0.3), **target("error=2%", met=False)},
            "heavy",
            "heavy 40.0 1.11 1.11 4 4 360 target 60.0 28.89",
            id="a target that is missed",
        ),
        pytest.param(
            facts(original=None, heavy=None, knee=None, light=None), None,
            "knee 70.0 2.00",
            id="no test set",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=FAILED, light=FAILED), "heavy",
            "heavy 40.0 1.11 1.11 4 4 360 knee light failed",
            id="failed picks",
        ),
        pytest.param(
            facts(heavy={"id": 3, "test_error": 0.0111, "flops_pruned": 0.7},
                  knee={"id": 3, "test_error": 0.0111}, light=0.3), "heavy",
            "heavy knee 70.0 1.11 1.11 4 4 360 light 85.0 28.89",
            id="identical picks",
        ),
        pytest.param(
            facts(images=None, heavy=0.0111, knee=0.02, light=0.4), "knee",
            "knee 70.0 0.89 2.00 1.11 light 85.0 38.00",
            id="size of the test set unknown",
        ),
        pytest.param(
            facts(original=None, heavy=0.0111, knee=0.0111, light=0.4), "knee",
            "knee 70.0 1.11 4 360 light 85.0 38.89",
            id="the original's test failed",
        ),
        pytest.param(
            facts(original=2.5, images=None, heavy=2.5, knee=2.6, light=4.0), "heavy",
            "heavy 40.0 2.5 2.5 knee 70.0 2.6",
            id="a figure of one's own task",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.3, light=0.3) | {"latency_batch_1": LATENCIES}, "heavy",
            "heavy 40.0 1.11 1.11 4 4 360 no faster 20.5 20 knee 70.0 28.89",
            id="not faster",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.3)
            | {"bench": {"networks": {name: {"latency_ms": {"PyTorch, batch 1": {"median": 1000 * value}}}
                                      for name, value in LATENCIES.items()}}}, "knee",
            "knee 70.0 1.11 1.11 4 4 360 2 50 light 85.0 28.89 slower",
            id="faster",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.0111) | {"latency_batch_1": LATENCIES}, "knee",
            "knee 70.0 1.11 1.11 4 4 360 2 50 light 85.0 slower",
            id="fewer FLOPs, but slower than one that errs no more",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, light=0.0056)
            | {"latency_batch_1": {**LATENCIES, "light": 0.019}}, "light",
            "light 85.0 noise 0.56 1.11 2 4 360 no faster 19 20",
            id="slower, but errs less than those that are faster",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.0111, target=0.0167) | target("flops=40%")
            | {"latency_batch_1": {"original": 0.02, "heavy": 0.005, "knee": 0.01, "target": 0.009}}, "knee",
            "knee target 40 70.0 1.11 1.11 4 4 360 2 50",
            id="heavy is faster, but breaks the limit",
        ),
        pytest.param(
            facts(knee=0.0111) | {"latency_batch_1": LATENCIES,
                                  "latency_batch_1_loaded": {"original": 0.030, "knee": 0.020}}, "knee",
            "knee 70.0 1.11 1.11 4 4 360 2 50 1.5",
            id="both forms",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"speed_low": 1.1, "speed_high": 5.0}), "knee",
            "knee 70.0 1.11 1.11 4 4 360 uncertain 1.1 5",
            id="a speed that repeats badly",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"runs": 5}), "knee",
            "knee 70.0 1.11 1.11 4 4 360 uncertain",
            id="a speed of few rounds",
        ),
        pytest.param(
            facts(knee=0.0111) | benched(knee={"speed_low": 3.9, "speed_high": 4.2}), "knee",
            "knee 70.0 1.11 1.11 4 4 360 4 25",
            id="a speed that repeats well",
        ),
        pytest.param(
            facts(heavy=0.0111, knee=0.3, light=0.3, candidate_17={"test_error": 0.0111, "id": 17}),
            "candidate-17",
            "17 50.0 1.11 1.11 4 4 360 knee 70.0 28.89",
            id="one fine-tuned on request",
        ),
        pytest.param(
            facts(original=0.0278, heavy={"test_error": 0.0444, "flops_pruned": 0.15}, knee=0.2, light=0.5)
            | {"latency_batch_1": LATENCIES}, None,
            "heavy 15.0 noise 4.44 2.78 16 10 360 no faster 20.5 20 knee 70.0 15.56",
            id="little saved, no faster, over a point worse",
        ),
        pytest.param(
            facts(original=0.0278, heavy={"test_error": 0.0444, "flops_pruned": 0.15}, knee=0.2, light=0.5)
            | {"latency_batch_1": {**LATENCIES, "heavy": 0.01}}, "heavy",
            "heavy 15.0 noise 4.44 2.78 16 10 360 2 50 knee 70.0 15.56",
            id="little saved, but twice as fast",
        ),
        pytest.param(
            facts(original=0.05, images=10_000, heavy=0.16, knee=0.3, light=0.4), None,
            "heavy 40.0 11.00 16.00 5.00 1600 500 10,000 knee 70.0 14.00",
            id="all lose more than any saving is worth",
        ),
        pytest.param(
            guessing(facts(original=0.8944, heavy=0.9, knee=0.89, light=0.9)), None,
            "WARNING",
            id="an original that guesses",
        ),
    ],
)  # fmt: skip
def test_which_to_take(kept: dict[str, Any], role: str | None, told: str) -> None:
    found = recommend(kept)
    assert found is not None
    assert (found.role, " ".join(FACT.findall(found.text))) == (role, told)


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
    assert [within_noise(0, 2), within_noise(0, 3), within_noise(4, 8), within_noise(4, 12)] == [
        True,
        False,
        True,
        False,
    ]
    assert wilson(0, 100) == pytest.approx((0.0, 0.037), abs=5e-4)
