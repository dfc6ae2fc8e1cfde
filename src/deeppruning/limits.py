"""Limits: what a thin network may cost and how much it may err, read from what a person writes.

>>> limits = Limits.parse(["flops=40%", "size=1MB,error=+1%"])
>>> limits.flops, limits.size, limits.worse
(0.4, 1000000.0, 0.01)
>>> str(limits)
'flops=40%, size=1MB, error=+1%'
>>> Limits.parse(["flops=140%"])
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: target 'flops=140%': a fraction lies above 0 % and at most at 100 %; \
write for example flops=40%
>>> Limits.parse(["flops=40"])
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: target 'flops=40' has no unit: 40% or 40M? Write for example flops=40%
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from deeppruning.errors import InputError, unknown

COUNTED = ("flops", "params", "size")  # follow from a genome alone
_FEW = 100  # a number without a unit from 1 to here is a share or an amount whose unit was forgotten
_THOUSANDS = {"k": 1e3, "m": 1e6, "g": 1e9}
_BYTES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = re.compile(r"(\+?)((?:\d[\d_]*)?\.?\d*(?:e[+-]?\d+)?) ?([a-zµ]*|%)")


@dataclass(frozen=True)
class Limit:
    """How one limit is written; metadata of the fields of `Limits`."""

    example: str
    units: Mapping[str, float]  # besides %
    usual: tuple[str, ...]  # the units to ask for where one is missing


def _limit_field(example: str, units: Mapping[str, float], *usual: str) -> Any:
    return field(default=None, metadata={"limit": Limit(example, units, usual)})


@dataclass(frozen=True)
class Limits:
    """Upper limits of a network's figures; None where there is none.

    What is counted (multiply-adds, parameters, bytes of the saved weights) is limited by a share of the
    original's up to 1, or by a number above 1. A plain number from 1 to 100 could be either, and is
    refused with the question which of the two is meant.
    """

    flops: float | None = _limit_field("flops=40%", _THOUSANDS, "%", "M")
    params: float | None = _limit_field("params=30% or params=100k", _THOUSANDS, "%", "k")
    size: float | None = _limit_field("size=1MB", _BYTES, "%", "MB")
    latency: float | None = _limit_field("latency=5ms", _SECONDS, "ms")  # seconds
    error: float | None = _limit_field(
        "error=+1% (points above the original's) or error=8%", {}, "%"
    )  # share of answers
    worse: float | None = None  # the same, above the original's

    @classmethod
    def of(cls, given: "Limits | Mapping[str, Any] | str | None") -> "Limits":
        """Limits from {"flops": 0.4, "latency": "5ms"} or "flops=40%,latency=5ms"."""
        if given is None or isinstance(given, Limits):
            return given or cls()
        if isinstance(given, str):
            return cls.parse([given])
        if not isinstance(given, Mapping):
            raise InputError(f'target must be a dict such as {{"flops": 0.4}}, got {type(given).__name__}')
        limits = cls()
        for name, value in given.items():
            limits = limits._with_limit(str(name), _limit_as_text(str(name), value))
        return limits

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Limits":
        """Limits from texts that each hold one or, between commas, several."""
        limits = cls()
        for part in (part.strip() for text in texts for part in text.split(",")):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise InputError(
                    f"target {part!r} is not name=limit; write for example {_example_of_limit(name)}"
                )
            limits = limits._with_limit(name, value)
        return limits

    def _with_limit(self, name: str, text: str) -> "Limits":
        if name not in LIMITS:
            raise InputError(f"{unknown('target', name, LIMITS)}; write for example {EXAMPLES}")
        attribute, value = _read_limit(name, text)
        if any(getattr(self, each) is not None for each in ((name, "worse") if name == "error" else (name,))):
            raise InputError(f"target {name} is given twice; give one limit for it")
        return replace(self, **{attribute: value})

    def to_table(self) -> dict[str, str]:
        """Texts by name that `of` reads back."""
        shown = {name: _limit_in_words(name, getattr(self, name)) for name in LIMITS}
        shown["error"] = shown["error"] or _limit_in_words("worse", self.worse)
        return {name: text for name, text in shown.items() if text}

    def __str__(self) -> str:
        return ", ".join(f"{name}={text}" for name, text in self.to_table().items())

    def __bool__(self) -> bool:
        return self != Limits()

    @property
    def bounds_error(self) -> bool:
        """Whether the error is limited."""
        return self.error is not None or self.worse is not None

    @property
    def objective(self) -> str | None:
        """The objective under which a search comes near these limits; None where no cost is limited."""
        return next((name for name in ("latency", *COUNTED) if getattr(self, name) is not None), None)

    def most(self, whole: Mapping[str, int]) -> dict[str, float]:
        """The numbers that may not be passed of what is counted, for an original of these figures."""
        given = {name: getattr(self, name) for name in COUNTED}
        return {
            name: float(value if value > 1 else value * whole[name])
            for name, value in given.items()
            if value is not None
        }

    def most_error(self, original: float) -> float:
        """The error that may not be passed, for an original of this error."""
        if self.worse is not None:
            return original + self.worse
        return math.inf if self.error is None else self.error


LIMITS: dict[str, Limit] = {
    each.name: each.metadata["limit"] for each in fields(Limits) if "limit" in each.metadata
}
EXAMPLES = ", ".join(limit.example for limit in LIMITS.values())


def _limit_as_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"target {name} must be a number or a text such as {_example_of_limit(name)}, got {value!r}"
        )
    if isinstance(value, float) and value == 1:  # of a float it is plain that it is a share
        return "100%"
    return repr(int(number)) if number.is_integer() else repr(number)


def _read_limit(name: str, text: str) -> tuple[str, float]:
    """The field of `Limits` that a text is about, and its value."""
    match = _NUMBER.fullmatch(text.lower())
    try:
        value = float(match[2]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not math.isfinite(value):
        raise _wrong_limit(name, text, "it is not a number, or its unit is unknown")
    plus, unit = bool(match[1]), match[3]
    if not unit and (1 <= value <= _FEW if name != "latency" else value > 0):
        raise _limit_without_unit(name, text)
    if plus and name != "error":
        raise _wrong_limit(name, text, "only an error is limited relative to the original's")
    if name == "error":
        share = _share_of_original(name, text, value, unit, low=0.0)
        return ("worse" if plus else "error"), share
    if unit in LIMITS[name].units:
        value *= LIMITS[name].units[unit]
        value = round(value, 6) if LIMITS[name].units is _THOUSANDS else value  # 0.057k are 57
    elif unit == "%" or (not unit and value <= 1):
        return name, _share_of_original(name, text, value, unit)
    elif unit:
        raise _wrong_limit(name, text, f"{unit} is not a unit of {name}")
    if name == "latency":
        if value <= 0:
            raise _wrong_limit(name, text, "a time lies above 0")
    elif value <= 1 or (name != "size" and not value.is_integer()):
        raise _wrong_limit(
            name, text, "a number above 1 is a count, which is whole; up to 1 it is a fraction"
        )
    return name, value


def _share_of_original(name: str, text: str, value: float, unit: str, *, low: float = math.ulp(0.0)) -> float:
    share = value / 100 if unit == "%" else value
    if unit not in ("", "%"):
        raise _wrong_limit(name, text, "a fraction is written with % or as a number below 1")
    if not low <= share <= 1:
        raise _wrong_limit(name, text, "a fraction lies above 0 % and at most at 100 %")
    return share


def _wrong_limit(name: str, text: str, why: str) -> InputError:
    return InputError(f"target {f'{name}={text}'[:80]!r}: {why}; write for example {_example_of_limit(name)}")


def _limit_without_unit(name: str, text: str) -> InputError:
    asked = " or ".join(f"{text}{unit}" for unit in LIMITS[name].usual)
    return InputError(
        f"target {f'{name}={text}'!r} has no unit: {asked}? Write for example {_example_of_limit(name)}"
    )


def _example_of_limit(name: str) -> str:
    return LIMITS.get(name, LIMITS["flops"]).example


def _limit_in_words(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "latency":
        return f"{1000 * value:.12g}ms"
    if name in ("error", "worse"):
        return f"{'+' if name == 'worse' else ''}{100 * value:.12g}%"
    if value <= 1:
        return f"{100 * value:.12g}%"
    if name != "size":
        return f"{value:.15g}" if value > _FEW else f"{value / 1000:.15g}k"
    for unit in ("MB", "kB"):  # the larger one, where the number is read back as it is
        times = value / _BYTES[unit.lower()]
        if times >= 1 and float(f"{times:.6g}") * _BYTES[unit.lower()] == value:
            return f"{times:.6g}{unit}"
    plain = f"{value:.15g}"
    return f"{plain if float(plain) == value else repr(value)}B"
