"""Which network of a finished run to take, and why, in one sentence based on the facts of the run.

It is the cheapest network with a test error within noise of the original's, or one that loses at most one
percentage point if it saves notably more. If all networks lose more than that, it is the cheapest within
noise of the most accurate. If a target was set and met, the choice is among the network that meets it and
those that are at least as good in everything that was limited. If another network has no higher error and is
measured to be faster, it is taken instead: FLOPs are not time. So no network has both a lower error and a
lower cost than the recommended one, unless it breaks a limit or is slower.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deeppruning.amounts import percent
from deeppruning.reporting.evidence import Speed, latency_ms, speed, within_noise
from deeppruning.roles import KNEE, ORIGINAL, candidate_number, in_order
from deeppruning.runs import facts

SMALL_LOSS = 0.01  # of all images: an acceptable loss for a much cheaper network
NOTABLY = 0.1  # of the original's FLOPs: savings closer than this are nearly the same
AS_FAST = 0.05  # latencies closer than this count as equal
LITTLE = 0.2  # of the original's FLOPs: a network that saves less must not lose accuracy
MUCH_LOSS = 0.1  # of all images: more than any saving is worth


@dataclass(frozen=True)
class Recommendation:
    """The role to take, None where the facts decide nothing, and the sentence for people."""

    role: str | None
    text: str
    none: bool = False  # no network should be taken


@dataclass(frozen=True)
class OfferedNetwork:
    """A network that can be chosen, with the figures that decide."""

    role: str
    id: int | None
    test_error: float | None
    search_error: float | None
    saved: float  # share of the original's FLOPs
    params: int
    latency_ms: float | None
    speed: Speed | None  # relative to the original
    loaded: Speed | None  # the same of the network as `dp.load` returns it
    also: tuple[str, ...] = ()  # other roles of the same candidate

    @classmethod
    def read(cls, role: str, figures: Mapping[str, Any], recorded: Mapping[str, Any]) -> "OfferedNetwork":
        """The network in a role, from the facts of a run."""
        return cls(
            role,
            figures.get("id"),
            figures.get("test_error"),
            figures.get("train_error"),
            figures.get("flops_pruned", 0.0),
            figures.get("params", 0),
            latency_ms(recorded, role),
            speed(recorded, role),
            speed(recorded, role, loaded=True),
        )

    @property
    def name(self) -> str:
        """As people read it: "candidate 17"."""
        return self.role if candidate_number(self.role) is None else self.role.replace("-", " ", 1)

    def is_faster_than(self, other: "OfferedNetwork") -> bool:
        """Whether it is measured to be faster by more than what counts as the same."""
        if (
            self.speed is None
            or other.speed is None
            or not (self.speed.is_certain and other.speed.is_certain)
        ):
            return False
        return other.speed.ratio < (1 - AS_FAST) * self.speed.ratio

    def is_as_good_as(self, other: "OfferedNetwork", limited: Collection[str]) -> bool:
        """Whether its error, its FLOPs and every limited quantity are at most those of the other."""
        pairs = [(self.test_error, other.test_error), (-self.saved, -other.saved)]
        if "params" in limited or "size" in limited:
            pairs.append((self.params, other.params))
        if "latency" in limited:
            pairs.append((self.latency_ms, other.latency_ms))
        return self == other or all(a is not None and b is not None and a <= b for a, b in pairs)


@dataclass(frozen=True)
class MetTarget:
    """Limits that were set and are met, and the network that meets them."""

    role: str
    option: OfferedNetwork
    text: str
    limited: frozenset[str]


@dataclass(frozen=True)
class Shortlist:
    """All networks and what decides between them; `images` is the size of the test set, if known."""

    original: OfferedNetwork
    options: tuple[OfferedNetwork, ...]
    images: int | None
    is_share: bool  # errors are shares of images, not values of a user's task
    targets: tuple[MetTarget, ...]
    failed: tuple[str, ...]  # picks without a network

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> "Shortlist":
        """From the facts of a run; picks that failed are only named."""
        figures = {role: value for key, value in recorded.items() if (role := facts.solution_role(key))}
        roles = list(dict.fromkeys((*in_order(figures), *figures)))
        failed = tuple(role for role in roles if figures[role].get("failure"))
        original = OfferedNetwork.read(ORIGINAL, recorded[facts.ORIGINAL_FIGURES.key], recorded)
        options = _distinct_networks(
            OfferedNetwork.read(role, figures[role], recorded) for role in roles if role not in failed
        )
        networks = (original, *options)
        errors = [network.test_error for network in networks] + [network.search_error for network in networks]
        return cls(
            original,
            options,
            images=recorded.get(facts.TEST_IMAGES.key),
            is_share=all(0.0 <= error <= 1.0 for error in errors if error is not None),
            targets=tuple(_targets_met(recorded, options)),
            failed=failed,
        )

    def wrong(self, error: float | None) -> int | None:
        """An error as a number of test images, where errors are shares of them."""
        return None if error is None or not self.images or not self.is_share else round(error * self.images)

    def no_worse(self, option: OfferedNetwork, other: OfferedNetwork) -> bool:
        """Whether the error of an option is not significantly higher than that of another network."""
        assert option.test_error is not None
        assert other.test_error is not None
        a, b = self.wrong(option.test_error), self.wrong(other.test_error)
        alike = a is not None and b is not None and within_noise(a, b)
        return option.test_error <= other.test_error or alike

    def loss(self, option: OfferedNetwork) -> float:
        """The error beyond the original's; infinite where it is unknown or no share of images."""
        if option.test_error is None or self.original.test_error is None or not self.is_share:
            return float("inf")
        return option.test_error - self.original.test_error

    def figure(self, error: float | None) -> str:
        """An error for people."""
        if error is None:
            return "unknown size"
        return percent(error) if self.is_share else f"{error:.4g}"


def _distinct_networks(options: Iterator[OfferedNetwork]) -> tuple[OfferedNetwork, ...]:
    """Each network once, named by its first role; fine-tuned again with other options, it is another."""
    networks: dict[tuple[int | None, float | None], OfferedNetwork] = {}
    for option in options:
        key = option.id, option.test_error
        first = networks.get(key)
        networks[key] = option if first is None else replace(first, also=(*first.also, option.role))
    return tuple(networks.values())


def _targets_met(recorded: Mapping[str, Any], options: Sequence[OfferedNetwork]) -> Iterator[MetTarget]:
    for role, target in facts.targets_in(recorded).items():
        option = next((option for option in options if role in (option.role, *option.also)), None)
        if option is not None and target["met"]:
            limited = frozenset(part.partition("=")[0].strip() for part in target["asked"].split(","))
            yield MetTarget(role, option, target["asked"], limited)


def recommend(recorded: Mapping[str, Any]) -> Recommendation | None:
    """The recommendation from a run's facts; None before the run is finished or if all picks failed.

    Nothing is recommended if the original is hardly better than guessing, or if no network is worth it.
    """
    if not recorded.get(facts.FINISHED.key) or facts.ORIGINAL_FIGURES.key not in recorded:
        return None
    shortlist = Shortlist.read(recorded)
    if not shortlist.options:
        return None
    doubt = recorded[facts.ORIGINAL_FIGURES.key].get("doubt")
    if doubt:
        text = f"{doubt} Until this is fixed, none of these networks is recommended."
        return Recommendation(None, text, none=True)
    option, target = _choose_network(shortlist)
    advice = _recommend_in_words(option, shortlist, target)
    if advice.role is None or _is_worth_it(option, shortlist):
        return advice
    closest = advice.text.removeprefix("Take ")
    return Recommendation(
        None, f"None of these networks is worth taking; the closest is {closest}", none=True
    )


def _is_worth_it(option: OfferedNetwork, shortlist: Shortlist) -> bool:
    """Whether a network gains more than it loses; one that meets a target does in any case.

    Not one that loses more than ten percentage points. Nor one that loses accuracy, by over a point or
    by more than noise, while it saves less than a fifth of the FLOPs and is not measured to be faster.
    """
    loss = shortlist.loss(option)
    if shortlist.targets or loss == float("inf"):
        return True
    fast = option.speed is not None and option.speed.is_certain and 1 - 1 / option.speed.ratio > AS_FAST
    errs_more = loss > SMALL_LOSS or not shortlist.no_worse(option, shortlist.original)
    return loss <= MUCH_LOSS and (option.saved >= LITTLE or fast or not errs_more)


def _choose_network(shortlist: Shortlist) -> tuple[OfferedNetwork, MetTarget | None]:
    """The network to take, and the target that it meets."""
    if not shortlist.targets:
        return _fastest_best(shortlist.options, shortlist), None
    allowed = {
        target: [
            option for option in shortlist.options if option.is_as_good_as(target.option, target.limited)
        ]
        for target in shortlist.targets
    }
    option = _fastest_best([option for options in allowed.values() for option in options], shortlist)
    met = [target for target, options in allowed.items() if option in options]
    return option, next((target for target in met if target.option == option), met[0])


def _fastest_best(options: Sequence[OfferedNetwork], shortlist: Shortlist) -> OfferedNetwork:
    """The best of some options; if others have no higher error and are faster, the best of those."""
    best = _best_network(options, shortlist)
    if best.test_error is None:
        return best
    faster = [
        option
        for option in options
        if option.test_error is not None
        and option.test_error <= best.test_error
        and option.is_faster_than(best)
    ]
    return _fastest_best(faster, shortlist) if faster else best


def _best_network(options: Sequence[OfferedNetwork], shortlist: Shortlist) -> OfferedNetwork:
    """The best of some options by test error and FLOPs; without test errors, the knee."""
    tested = [option for option in options if option.test_error is not None]
    if not tested:
        return next((option for option in options if KNEE in (option.role, *option.also)), options[0])
    cheapest_first = sorted(tested, key=lambda option: (-option.saved, option.test_error))
    if shortlist.original.test_error is not None:
        harmless = next(
            (option for option in cheapest_first if shortlist.no_worse(option, shortlist.original)), None
        )
        fair = next((option for option in cheapest_first if shortlist.loss(option) <= SMALL_LOSS), harmless)
        if harmless is not None and fair is not None and fair.saved - harmless.saved < NOTABLY:
            return harmless
        if fair is not None:
            return fair
    most_accurate = min(tested, key=lambda option: (option.test_error, -option.saved))
    return next(option for option in cheapest_first if shortlist.no_worse(option, most_accurate))


def _recommend_in_words(
    option: OfferedNetwork, shortlist: Shortlist, target: MetTarget | None
) -> Recommendation:
    """The recommendation as a sentence."""
    saved = f"saves {percent(option.saved, 1)} of the FLOPs"
    speed_words = _speed_in_words(option, shortlist)
    if option.test_error is None and target is None:
        error = shortlist.figure(option.search_error)
        return Recommendation(
            None,
            f"There is no test set to choose by: {option.name}, the best trade-off of the search, {saved} at "
            f"an error of {error} in the search{speed_words}.",
        )
    why = "it"
    if target is not None and target.option == option:
        option, why = replace(option, role=target.role, also=()), "it meets the target and"
    elif target is not None:
        why = f"it is at least as good as {target.role} in everything that is limited ({target.text}) and"
    also = f" (also the {' and the '.join(option.also)})" if option.also else ""
    failed = f"; the fine-tuning of {' and '.join(shortlist.failed)} failed" if shortlist.failed else ""
    text = (
        f"Take {option.name}{also}: {why} {saved}{_error_in_words(option, shortlist)}{speed_words}"
        f"{_cheaper_alternative(option, shortlist, target)}{failed}."
    )
    return Recommendation(option.role, text)


def _error_in_words(option: OfferedNetwork, shortlist: Shortlist) -> str:
    before, after = shortlist.original.test_error, option.test_error
    if after is None:
        return ""
    a, b = shortlist.wrong(after), shortlist.wrong(before)
    if before is None:
        images = "" if a is None else f" ({a} of {shortlist.images:,} images)"
        return f" at a test error of {shortlist.figure(after)}{images}"
    counts = "" if a is None else f": {a} and {b} of {shortlist.images:,} images"
    both = f"({shortlist.figure(after)} against {shortlist.figure(before)}{counts})"
    if after == before or (a is not None and a == b):
        return f" at the test error of the original {both}"
    if a is not None and b is not None and within_noise(a, b):
        return f" at a test error within noise of the original's {both}"
    more = "more" if after > before else "less"
    points = f"{100 * abs(after - before):.2f} points {more}" if shortlist.is_share else more
    return f" with {points} test error than the original {both}"


def _speed_in_words(option: OfferedNetwork, shortlist: Shortlist) -> str:
    speed = option.speed
    if speed is None:
        return ""
    if not speed.is_certain:
        limits = f"between {speed.low:.2g} and {speed.high:.2g} times as fast"
        return f", but its speed is uncertain (measured {limits if speed.low else 'too few times'})"
    both = f"({option.latency_ms:.3g} ms against {shortlist.original.latency_ms:.3g} ms)"
    if abs(1 - 1 / speed.ratio) <= AS_FAST:
        return f", but it is no faster {both}"
    if speed.ratio < 1:
        return f", but it is slower {both}"
    loaded = option.loaded
    also = f"; {loaded.ratio:.2g} times {facts.AS_LOADED}" if loaded is not None and loaded.is_certain else ""
    share = percent(1 / speed.ratio, 0)
    return f" and runs {speed.ratio:.2g} times as fast ({share} of the time, as exported{also})"


def _cheaper_alternative(option: OfferedNetwork, shortlist: Shortlist, target: MetTarget | None) -> str:
    """What the next cheaper network saves and loses; a more expensive one gains nothing."""
    error = option.test_error
    if error is None:
        return ""
    cheaper = [
        (other.saved, other.test_error, other)
        for other in shortlist.options
        # With a target, a network with a lower error breaks a limit, or it would have been chosen.
        if other.saved > option.saved
        and other.test_error is not None
        and (not target or other.test_error > error)
    ]
    if not cheaper:
        return ""
    saved, other_error, other = min(cheaper, key=lambda row: row[0])
    slower, saves = option.is_faster_than(other), f"; {other.name} saves {percent(saved, 1)}"
    if not shortlist.is_share:
        return f"{saves} at {shortlist.figure(other_error)}{' but is slower' if slower else ''}"
    points = 100 * (other_error - error)
    if slower and points < 0.005:
        return f"{saves} but is slower"
    more = f"{points:.2f}" if points >= 0.005 else "less than 0.01"
    return f"{saves} for {more} points more{' and is slower' if slower else ''}"
