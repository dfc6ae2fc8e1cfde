"""Which network of a finished run to take, and why, in one sentence made of the run's facts alone.

The network that meets what was asked for, where there is one. Otherwise the cheapest that loses nothing
that the test set can tell; or one that loses at most a point, if it saves notably more. Where all lose
more, the cheapest of those that the test set cannot tell from the most accurate one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deeppruning.reporting.chance import are_alike
from deeppruning.reporting.grounds import Grounds, Option, grounds_of
from deeppruning.roles import KNEE, TARGET
from deeppruning.runs import facts

SMALL_LOSS = 0.01  # of all images: what many call a fair price for a cheaper network
NOTABLY = 0.1  # of the original's FLOPs: savings closer than this are nearly the same
AS_FAST = 0.05  # latencies closer than this are the same
LITTLE = 0.2  # of the original's FLOPs: who saves less must not lose
MUCH_LOSS = 0.1  # of all images: more than any saving is worth


@dataclass(frozen=True)
class Recommendation:
    """The role to take, None where facts decide nothing, and the sentence for people."""

    role: str | None
    text: str
    none: bool = False  # that none is to be taken, which was found out


def recommend(kept: Mapping[str, Any]) -> Recommendation | None:
    """The recommendation from a run's facts; None before the run is finished or if all picks failed.

    Nothing is recommended where the original is no better than guessing, or where no network is worth it.
    """
    if not kept.get(facts.FINISHED.key) or facts.ORIGINAL_FIGURES.key not in kept:
        return None
    doubt = kept[facts.ORIGINAL_FIGURES.key].get("doubt")
    if doubt:
        return Recommendation(None, f"{doubt} Until then none of these networks is recommended.", none=True)
    grounds = grounds_of(kept)
    if not grounds.options:
        return None
    found = choose(grounds)
    taken = next((one for one in grounds.options if one.role == found.role), None)
    if taken is None or _is_worth_it(taken, grounds):
        return found
    nearest = found.text.removeprefix("Take ")
    return Recommendation(
        None, f"None of these networks is worth taking; the nearest is {nearest}", none=True
    )


def _is_worth_it(one: Option, grounds: Grounds) -> bool:
    """Whether a network gains more than it loses; what was asked for is, in any case.

    Not one that errs on ten of 100 images more than the original. Nor one that errs more, by over a point or
    by more than chance, while it saves less than a fifth of the FLOPs and is not measured to be faster.
    """
    roles = [role for other in grounds.options for role in (other.role, *other.also)]
    loss = _loss(one, grounds)
    if any(role.startswith(TARGET) for role in roles) or loss == float("inf"):
        return True
    before, after = grounds.original.latency_ms, one.latency_ms
    faster = bool(before and after and before - after > AS_FAST * before)
    errs_more = loss > SMALL_LOSS or not grounds.no_worse(one, grounds.original)
    return loss <= MUCH_LOSS and (one.saved >= LITTLE or faster or not errs_more)


def choose(grounds: Grounds) -> Recommendation:
    """The choice, and its reason in words."""
    options, original = grounds.options, grounds.original
    target = next((one for one in options if TARGET in (one.role, *one.also)), None)
    if target is not None and grounds.target_met:
        return _say(replace(target, role=TARGET, also=()), grounds, "it is what was asked for and ")
    tested = [one for one in options if one.test_error is not None]
    if not tested:
        knee = next((one for one in options if KNEE in (one.role, *one.also)), options[0])
        error = _figure(knee.search_error, grounds)
        return Recommendation(
            None,
            f"There is no test set to choose by: {knee.name}, the bargain of the search, saves "
            f"{_percent(knee.saved)} of the FLOPs at an error of {error} in the search.",
        )
    by_saved = sorted(tested, key=lambda one: -one.saved)
    if original.test_error is not None:
        harmless = next((one for one in by_saved if grounds.no_worse(one, original)), None)
        fair = next((one for one in by_saved if _loss(one, grounds) <= SMALL_LOSS), harmless)
        if harmless is not None and fair is not None and fair.saved - harmless.saved < NOTABLY:
            return _say(harmless, grounds)
        if fair is not None and grounds.is_share:
            return _say(fair, grounds)
        if harmless is not None:
            return _say(harmless, grounds)
    best = min(tested, key=lambda one: (one.test_error, -one.saved))
    return _say(next(one for one in by_saved if grounds.no_worse(one, best)), grounds)


def _loss(one: Option, grounds: Grounds) -> float:
    """The error beyond the original's; a figure of the user's own task knows no points."""
    if one.test_error is None or grounds.original.test_error is None or not grounds.is_share:
        return float("inf")
    return one.test_error - grounds.original.test_error


def _say(taken: Option, grounds: Grounds, why: str = "it ") -> Recommendation:
    parts = [f"saves {_percent(taken.saved)} of the FLOPs", _error_words(taken, grounds)]
    also = f" (also the {' and the '.join(taken.also)})" if taken.also else ""
    speed = _speed_words(taken, grounds)
    other = _alternative(taken, grounds)
    lost = f"; the fine-tuning of {' and '.join(grounds.failed)} failed" if grounds.failed else ""
    text = f"Take {taken.name}{also}: {why}{' '.join(filter(None, parts))}{speed}{other}{lost}."
    return Recommendation(taken.role, text)


def _error_words(taken: Option, grounds: Grounds) -> str:
    before, after = grounds.original.test_error, taken.test_error
    if after is None:
        return ""
    if before is None:
        return f"at a test error of {_counted(after, grounds)}"
    a, b = grounds.wrong(after), grounds.wrong(before)
    if a is not None and b is not None:
        tail = (
            f"({_percent(after, 2)} against {_percent(before, 2)}: {a} and {b} of {grounds.images:,} images)"
        )
        if a == b:
            return f"at the test error of the original {tail}"
        if are_alike(a, b):
            return f"at a test error that differs from the original's by no more than chance {tail}"
    else:
        tail = f"({_figure(after, grounds)} against {_figure(before, grounds)})"
    if after == before:
        return f"at the test error of the original {tail}"
    more = "more" if after > before else "less"
    points = f"{100 * abs(after - before):.2f} points {more}" if grounds.is_share else more
    return f"for {points} test error than the original {tail}"


def _speed_words(taken: Option, grounds: Grounds) -> str:
    before, after = grounds.original.latency_ms, taken.latency_ms
    if not before or not after:
        return ""
    if abs(before - after) <= AS_FAST * before:
        return f", though it is measured no faster ({after:.3g} ms against {before:.3g} ms)"
    if after > before:
        return f", though it is measured slower ({after:.3g} ms against {before:.3g} ms)"
    return f" and is measured {before / after:.2g} times as fast"


def _alternative(taken: Option, grounds: Grounds) -> str:
    """What the next cheaper network would save and lose; of a dearer one, nothing is to be gained."""
    if taken.test_error is None:
        return ""
    cheaper = [one for one in grounds.options if one.saved > taken.saved and one.test_error is not None]
    if not cheaper:
        return ""
    other = min(cheaper, key=lambda one: one.saved)
    assert other.test_error is not None
    if not grounds.is_share:
        return f"; {other.name} saves {_percent(other.saved)} at {_figure(other.test_error, grounds)}"
    more = other.test_error - taken.test_error
    word = f"{100 * abs(more):.2f} points {'more' if more >= 0 else 'less'}"
    return f"; {other.name} saves {_percent(other.saved)} for {word}"


def _counted(error: float, grounds: Grounds) -> str:
    wrong = grounds.wrong(error)
    images = "" if wrong is None else f" ({wrong} of {grounds.images:,} images)"
    return f"{_figure(error, grounds)}{images}"


def _figure(error: float | None, grounds: Grounds) -> str:
    if error is None:
        return "unknown size"
    return _percent(error, 2) if grounds.is_share else f"{error:.4g}"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"
