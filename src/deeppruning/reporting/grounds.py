"""What a choice among the networks of a run rests on: their figures, and what the test set can tell."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deeppruning.reporting.chance import are_alike
from deeppruning.reporting.measured import Speed, latency_ms, speed
from deeppruning.roles import ORIGINAL, candidate_number, in_order
from deeppruning.runs import facts


@dataclass(frozen=True)
class Option:
    """A network to choose, in the figures that decide."""

    role: str
    id: int | None
    test_error: float | None
    search_error: float | None
    saved: float  # share of the original's FLOPs
    params: int = 0
    latency_ms: float | None = None
    speed: Speed | None = None  # beside the original's
    loaded: Speed | None = None  # the same of the network as `dp.load` returns it
    also: tuple[str, ...] = ()  # other roles that the same candidate holds

    @property
    def name(self) -> str:
        """As people read it: "candidate 17"."""
        return self.role if candidate_number(self.role) is None else self.role.replace("-", " ", 1)

    def is_as_good_as(self, other: "Option", limited: Collection[str]) -> bool:
        """Whether it errs no more, costs no more FLOPs, and has no more of what is limited."""
        pairs = [(self.test_error, other.test_error), (-self.saved, -other.saved)]
        if "params" in limited or "size" in limited:
            pairs.append((self.params, other.params))
        if "latency" in limited:
            pairs.append((self.latency_ms, other.latency_ms))
        return self == other or all(a is not None and b is not None and a <= b for a, b in pairs)


@dataclass(frozen=True)
class Asked:
    """Limits that were asked for and are met, and by which network."""

    role: str  # of a target
    by: Option
    text: str
    limited: frozenset[str]


@dataclass(frozen=True)
class Grounds:
    """All that is known when a choice is made; `images` is the size of the test set, where known."""

    original: Option
    options: tuple[Option, ...]
    images: int | None
    is_share: bool  # errors are shares of images, not figures of the user's own task
    met: tuple[Asked, ...] = ()  # by the run's targets
    failed: tuple[str, ...] = ()  # picks without a network

    def wrong(self, error: float) -> int | None:
        """How many of the test images an error is, where errors are such."""
        return round(error * self.images) if self.images and self.is_share else None

    def no_worse(self, one: Option, other: Option) -> bool:
        """Whether the test set does not tell that the one errs more."""
        first, second = one.test_error, other.test_error
        assert first is not None
        assert second is not None
        a, b = self.wrong(first), self.wrong(second)
        return first <= second or (a is not None and b is not None and are_alike(a, b))


def grounds_of(kept: Mapping[str, Any]) -> Grounds:
    """The grounds that a run's facts give; picks that came to nothing are only named."""
    figures = {role: found for key, found in kept.items() if (role := facts.solution_role(key)) is not None}
    order = list(dict.fromkeys((*in_order(figures), *figures)))
    there = [role for role in order if not figures[role].get("failure")]
    original = _option(ORIGINAL, kept[facts.ORIGINAL_FIGURES.key], kept)
    options = _merged([_option(role, figures[role], kept) for role in there])
    errors = [error for one in (original, *options) for error in (one.test_error, one.search_error)]
    return Grounds(
        original,
        options,
        images=kept.get(facts.TEST_IMAGES.key),
        is_share=all(0.0 <= error <= 1.0 for error in errors if error is not None),
        failed=tuple(role for role in order if role not in there),
        met=tuple(_met(kept, options)),
    )


def _met(kept: Mapping[str, Any], options: Sequence[Option]) -> Iterator[Asked]:
    for role, target in facts.targets_in(kept).items():
        by = next((one for one in options if role in (one.role, *one.also)), None)
        if by is not None and target["met"]:
            limited = frozenset(part.partition("=")[0].strip() for part in target["asked"].split(","))
            yield Asked(role, by, target["asked"], limited)


def _merged(options: Sequence[Option]) -> tuple[Option, ...]:
    """Each network once: a candidate that holds several roles is one to choose, named by the first."""
    found: list[Option] = []
    for one in options:
        place = next((at for at, old in enumerate(found) if _same(old, one)), None)
        if place is None:
            found.append(one)
        else:
            found[place] = replace(found[place], also=(*found[place].also, one.role))
    return tuple(found)


def _same(one: Option, other: Option) -> bool:
    # A candidate fine-tuned once more by other options is another network.
    return one.id == other.id and one.test_error == other.test_error


def _option(role: str, figures: Mapping[str, Any], kept: Mapping[str, Any]) -> Option:
    return Option(
        role,
        figures.get("id"),
        figures.get("test_error"),
        figures.get("train_error"),
        figures.get("flops_pruned", 0.0),
        figures.get("params", 0),
        latency_ms(kept, role),
        speed(kept, role),
        speed(kept, role, loaded=True),
    )
