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
_LARGEST = 2**31 - 1
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
        if kind is bool:
            fits, expected = isinstance(value, bool), "true or false"
        elif kind is int:
            low, high = self.low or 0, _LARGEST if self.high is None else self.high
            fits, expected = _is_number(value, int) and value >= low, f"a whole number of at least {low}"
            if fits and value > high:
                fits, expected = False, f"at most {high}"
        elif kind is float:
            low, high = self.low or 0.0, math.inf if self.high is None else self.high
            if not _is_number(value, (int, float)) or not low <= value <= high:
                limit = f"be at least {low}" if high == math.inf else f"lie in [{low}, {high}]"
                raise InputError(f"{name} must {limit}, got {value!r}")
            return
        elif get_origin(kind) is tuple:
            entry, expected = (
                get_args(kind)[0],
                "a list of texts" if str in get_args(kind) else "a list of numbers",
            )
            entries = (str,) if entry is str else (int, float)
            fits = isinstance(value, (list, tuple)) and all(isinstance(each, entries) for each in value)
        elif self.choices and value not in self.choices:
            raise unknown(name, str(value), self.choices)
        else:
            fits = isinstance(value, kind)
            expected = "a text" if kind is str else getattr(kind, "__name__", kind)
        if not fits:
            raise InputError(f"{name} must be {expected}, got {value!r}")


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
        each.name: (each.metadata["option"], _kinds(config)[each.name])
        for each in fields(config)
        if "option" in each.metadata
    }


@cache
def _kinds(config: Any) -> dict[str, Any]:
    return {name: _without_none(hint) for name, hint in get_type_hints(config).items()}


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = Union[tuple(part for part in get_args(hint) if part is not type(None))]  # noqa: UP007
    return hint


def _is_number(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that are checked when they are made, and read from and written as plain tables."""

    def __post_init__(self) -> None:
        config: Any = type(self)
        kinds = _kinds(config)
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
        """The names of options that differ from their defaults."""
        return [
            each.name
            for each in fields(self)
            if each.default is not MISSING and getattr(self, each.name) != each.default
        ]

    @classmethod
    def paper(cls: type[Config], **changes: Any) -> Config:
        """The paper's options, with these changes."""
        values = {name: described.paper for name, (described, _) in described_options(cls).items()}
        return cls(**{**values, **changes})
