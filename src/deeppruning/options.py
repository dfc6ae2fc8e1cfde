"""An option is described once, as metadata of a dataclass field: checks, flags, help and docs follow from it.

>>> @dataclass(frozen=True, kw_only=True)
... class Example(Options):
...     share: float = option(0.5, "A fraction.", low=0.0, high=1.0)
>>> Example(share=2.0)
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: share must lie in [0.0, 1.0], got 2.0
"""

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from deeppruning.errors import InputError, unknown

Config = TypeVar("Config", bound="Options")

# Headings of a long --help, in their order.
NETWORK, DATA, COMPARING, SEARCH = "Network", "Data", "Comparison", "Search"
EVALUATION, PRUNED = "Evaluation of candidates", "Layers to prune"
TRAINING, FINETUNING = "Training", "Fine-tuning"
MACHINE, OUTPUT, ELSEWHERE = "Machine", "Output", "Options and code from other places"
HEADINGS = (
    *(NETWORK, DATA, COMPARING, SEARCH, EVALUATION, PRUNED, TRAINING, FINETUNING),
    *(MACHINE, OUTPUT, ELSEWHERE),
)
_LARGEST = 2**31 - 1  # of a whole number
_LONGEST = 1024  # characters of a path or name
_SAME = object()  # the paper's preset has our default


@dataclass(frozen=True)
class Option:
    """The description of one option; its name, type and default are those of its field."""

    help: str
    heading: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    default: str  # text for the default where the data or the machine decides it
    paper: Any  # the value in the paper's preset
    stated: bool  # whether the paper states that value
    common: bool  # whether the short --help shows it
    unprefixed: bool  # whether --label-smoothing is not called --finetune-label-smoothing in `prune`
    metavar: str | None

    def check(self, name: str, kind: Any, value: Any) -> None:
        """Raise unless the value has the option's type and lies within its limits."""
        if self.choices and value not in self.choices:
            raise unknown(name, str(value), self.choices)
        entries = get_args(kind) if get_origin(kind) is tuple else ()
        if not entries:
            fits, expected = self._fits_type(kind, value), self._expected_in_words(kind)
            if kind is float and (isinstance(value, bool) or not isinstance(value, (int, float))):
                expected = "be a number"
        elif Ellipsis in entries:
            fits = isinstance(value, (list, tuple)) and all(
                self._fits_type(entries[0], each) for each in value
            )
            expected = f"be a list of {'texts' if entries[0] is str else 'numbers'}"
        else:
            listed = isinstance(value, (list, tuple)) and len(value) == len(entries)
            fits = listed and all(map(self._fits_type, entries, value))
            expected = (
                f"be {len(entries)} numbers, each {self._expected_in_words(entries[0]).removeprefix('be ')}"
            )
        if not fits:
            raise InputError(f"{name} must {expected}, got {_short_value(value)}")

    def _fits_type(self, kind: Any, value: Any) -> bool:
        if kind in (int, float):
            low, high = self._allowed_range(kind)
            number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
            return number and low <= value <= high and math.isfinite(value)
        if kind in (str, Path):  # a path with a zero byte, or a longer one, is an error of the system
            return isinstance(value, (str, kind)) and "\0" not in str(value) and len(str(value)) <= _LONGEST
        return isinstance(value, kind)

    def _allowed_range(self, kind: Any) -> tuple[float, float]:
        usual = (0, _LARGEST) if kind is int else (0.0, math.inf)
        return usual[0] if self.low is None else self.low, usual[1] if self.high is None else self.high

    def _expected_in_words(self, kind: Any) -> str:
        low, high = self._allowed_range(kind)
        if kind is float:
            return f"be at least {low}" if high == math.inf else f"lie in [{low}, {high}]"
        if kind is int:
            return f"be a whole number of at least {low}{'' if high == _LARGEST else f' and at most {high}'}"
        names = {bool: "true or false", str: "a short text", Path: "a path"}
        return f"be {names.get(kind, getattr(kind, '__name__', kind))}"


def _short_value(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 80 else f"{shown[:77]}..."


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How two tables of options differ; empty if they do not.

    >>> differences({"epochs": 5, "lr": 0.1}, {"epochs": 6, "lr": 0.1})
    'epochs was 5 and is 6'
    """

    def shown(value: Any) -> str:
        return "not given" if value is None else _short_value(value)

    return "; ".join(
        f"{name} was {shown(then.get(name))} and is {shown(now.get(name))}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    )


def option(
    default: Any,
    help: str,
    *,
    heading: str = SEARCH,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    default_text: str = "",
    paper: Any = _SAME,
    stated: bool | None = None,
    common: bool = False,
    unprefixed: bool = False,
    metavar: str | None = None,
) -> Any:
    """A dataclass field that describes an option; `paper` is its value in the paper."""
    described = Option(
        help, heading, low, high, choices, default_text,
        paper=default if paper is _SAME else paper,
        stated=paper is not _SAME if stated is None else stated,
        common=common, unprefixed=unprefixed, metavar=metavar,
    )  # fmt: skip
    return field(default=default, metadata={"option": described})


def described_options(config: Any) -> dict[str, tuple[Option, Any]]:
    """Description and type of each option of a config; the type of `int | None` is int."""
    return {
        each.name: (each.metadata["option"], _types_of_fields(config)[each.name])
        for each in fields(config)
        if "option" in each.metadata
    }


@cache
def _types_of_fields(config: Any) -> dict[str, Any]:
    return {name: _without_none(hint) for name, hint in get_type_hints(config).items()}


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = Union[tuple(part for part in get_args(hint) if part is not type(None))]  # noqa: UP007
    return hint


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that are checked when they are made, and read from and written as plain tables."""

    def __post_init__(self) -> None:
        config: Any = type(self)
        kinds = _types_of_fields(config)
        for each in fields(self):
            value = getattr(self, each.name)
            if "option" not in each.metadata or (value is None and each.default is None):
                continue
            each.metadata["option"].check(each.name, kinds[each.name], value)
            if isinstance(value, list):
                object.__setattr__(self, each.name, tuple(value))

    @classmethod
    def from_table(cls: type[Config], table: Mapping[str, Any]) -> Config:
        """The options in a TOML table; an unknown key is an error that names the nearest option."""
        names = {each.name for each in fields(cls)}
        for key in table:
            if key not in names:
                raise unknown(f"{cls.__name__} option", key, names)
        return cls(**table)

    def to_table(self) -> dict[str, Any]:
        """A TOML-ready table that `from_table` reads back; options that are None are left out."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def changed(self) -> list[str]:
        """The names of options that are neither their defaults nor what these are settled to."""
        required = {each.name: getattr(self, each.name) for each in fields(self) if each.default is MISSING}
        usual = type(self)(**required)
        return [
            each.name
            for each in fields(self)
            if getattr(self, each.name) not in (each.default, getattr(usual, each.name))
        ]

    @classmethod
    def paper(cls: type[Config], **changes: Any) -> Config:
        """The paper's options, with these changes."""
        values = {name: described.paper for name, (described, _) in described_options(cls).items()}
        return cls(**{**values, **changes})
