"""Which network of a finished run to take, and why, in one sentence made of the run's facts alone.

The cheapest that loses nothing that the test set can tell; or one that loses at most a point, if it saves
notably more. Where all lose more, the cheapest of those that the test set cannot tell from the most accurate
one. Where limits were asked for and are met, this is a choice among the networks that meet them and those
that are as good in everything. So no network that is shown errs less and costs less than the one to take,
unless it breaks the limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deeppruning.reporting.chance import are_alike
from deeppruning.reporting.grounds import Asked, Grounds, Option, grounds_of
from deeppruning.roles import KNEE
from deeppruning.runs import facts

SMALL_LOSS = 0.01  # of all images: what many call a fair price for a cheaper network
NOTABLY = 0.1  # of the original's FLOPs: savings closer than this are nearly the same
EXPORTED = "as exported"  # in the form that was measured: batch norms folded
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

    Nothing is recommended where the original is hardly better than guessing, or where no network is worth it.
    """
    if not kept.get(facts.FINISHED.key) or facts.ORIGINAL_FIGURES.key not in kept:
        return None
    grounds = grounds_of(kept)
    if not grounds.options:
        return None
    doubt = kept[facts.ORIGINAL_FIGURES.key].get("doubt")
    if doubt:
        return Recommendation(None, f"{doubt} Until then none of these networks is recommended.", none=True)
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
    loss = _loss(one, grounds)
    if grounds.met or loss == float("inf"):
        return True
    faster = one.speed is not None and one.speed.is_known and 1 - 1 / one.speed.ratio > AS_FAST
    errs_more = loss > SMALL_LOSS or not grounds.no_worse(one, grounds.original)
    return loss <= MUCH_LOSS and (one.saved >= LITTLE or faster or not errs_more)


def choose(grounds: Grounds) -> Recommendation:
    """The choice, and its reason in words."""
    if not grounds.met:
        return _say(_fairest(grounds.options, grounds), grounds)
    asked = {limits: _as_good(limits, grounds) for limits in grounds.met}
    taken = _fairest([one for options in asked.values() for one in options], grounds)
    met = [limits for limits, options in asked.items() if taken in options]
    return _say(taken, grounds, next((limits for limits in met if limits.by == taken), met[0]))


def _as_good(asked: Asked, grounds: Grounds) -> list[Option]:
    """The network that meets limits, and whatever is as good in all respects."""
    return [one for one in grounds.options if one.is_as_good_as(asked.by, asked.limited)]


def _fairest(options: Sequence[Option], grounds: Grounds) -> Option:
    """The one to take, by errors on the test set; without any, the knee, the bargain of the search."""
    tested = [one for one in options if one.test_error is not None]
    if not tested:
        return next((one for one in options if KNEE in (one.role, *one.also)), options[0])
    by_saved = sorted(tested, key=lambda one: (-one.saved, one.test_error))
    if grounds.original.test_error is not None:
        harmless = next((one for one in by_saved if grounds.no_worse(one, grounds.original)), None)
        fair = next((one for one in by_saved if _loss(one, grounds) <= SMALL_LOSS), harmless)
        if harmless is not None and fair is not None and fair.saved - harmless.saved < NOTABLY:
            return harmless
        if fair is not None:
            return fair
    best = min(tested, key=lambda one: (one.test_error, -one.saved))
    return next(one for one in by_saved if grounds.no_worse(one, best))


def _loss(one: Option, grounds: Grounds) -> float:
    """The error beyond the original's; a figure of the user's own task knows no points."""
    if one.test_error is None or grounds.original.test_error is None or not grounds.is_share:
        return float("inf")
    return one.test_error - grounds.original.test_error


def _say(taken: Option, grounds: Grounds, asked: Asked | None = None) -> Recommendation:
    if taken.test_error is None and asked is None:
        return Recommendation(
            None,
            f"There is no test set to choose by: {taken.name}, the bargain of the search, saves "
            f"{_percent(taken.saved)} of the FLOPs at an error of {_figure(taken.search_error, grounds)} in "
            f"the search{_speed_words(taken, grounds)}.",
        )
    why = "it "
    if asked is not None and asked.by == taken:
        taken, why = replace(taken, role=asked.role, also=()), "it is what was asked for and "
    elif asked is not None:
        why = f"it is as good as {asked.role} in all that was asked for ({asked.text}) and "
    parts = [f"saves {_percent(taken.saved)} of the FLOPs", _error_words(taken, grounds)]
    also = f" (also the {' and the '.join(taken.also)})" if taken.also else ""
    other = _alternative(taken, grounds, asked)
    lost = f"; the fine-tuning of {' and '.join(grounds.failed)} failed" if grounds.failed else ""
    speed = _speed_words(taken, grounds)
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
    speed = taken.speed
    if speed is None:
        return ""
    if not speed.is_known:
        between = (
            f"between {speed.low:.2g} and {speed.high:.2g} times as fast" if speed.low else "too few times"
        )
        return f", but its speed is uncertain (measured {between})"
    before, after = grounds.original.latency_ms, taken.latency_ms
    if abs(1 - 1 / speed.ratio) <= AS_FAST:
        return f", though it is measured no faster ({after:.3g} ms against {before:.3g} ms)"
    if speed.ratio < 1:
        return f", though it is measured slower ({after:.3g} ms against {before:.3g} ms)"
    loaded = taken.loaded
    beside = f"; {loaded.ratio:.2g} times {facts.AS_LOADED}" if loaded is not None and loaded.is_known else ""
    return (
        f" and is measured {speed.ratio:.2g} times as fast ({_percent(1 / speed.ratio, 0)} of the time, "
        f"{EXPORTED}{beside})"
    )


def _alternative(taken: Option, grounds: Grounds, asked: Asked | None) -> str:
    """What the next cheaper network would save and lose; of a dearer one, nothing is to be gained."""
    if taken.test_error is None:
        return ""
    cheaper = [one for one in grounds.options if one.saved > taken.saved and one.test_error is not None]
    if asked is not None:  # one that errs less breaks a limit, or it would have been taken
        cheaper = [one for one in cheaper if (one.test_error or 0.0) > taken.test_error]
    if not cheaper:
        return ""
    other = min(cheaper, key=lambda one: one.saved)
    assert other.test_error is not None
    if not grounds.is_share:
        return f"; {other.name} saves {_percent(other.saved)} at {_figure(other.test_error, grounds)}"
    points = 100 * (other.test_error - taken.test_error)
    more = f"{points:.2f}" if points >= 0.005 else "less than 0.01"
    return f"; {other.name} saves {_percent(other.saved)} for {more} points more"


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
