"""The options in a run's config.toml, checked; an error names the file.

>>> Tables({"search": {}}, "config.toml")["run"]
Traceback (most recent call last):
    ...
deeppruning.errors.RunError: config.toml lacks 'run'; restore it from a copy or start a new run
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError, RunError
from deeppruning.limits import Limits

ADVICE = "restore it from a copy or start a new run"
LONGEST_TEXT = 1024  # characters of a path or name
LONGEST_SIDE = 1 << 13  # pixels of an image: 200 MB
MOST_WORKERS = 1 << 16  # of a cluster; on this machine the number of cores is the limit


class Tables(dict[str, Any]):
    """A table of options; asking for one that is not there is an error that names the file."""

    def __init__(self, content: Mapping[str, Any], file: Path | str, name: str = "") -> None:
        self._file, self._name = file, name
        inner = {
            key: Tables(value, file, f"{name}{key}.") if isinstance(value, Mapping) else value
            for key, value in content.items()
        }
        super().__init__(inner)

    def __missing__(self, key: str) -> Any:
        raise RunError(f"{self._file} lacks {self._name + key!r}; {ADVICE}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tables, (dict(self), self._file, self._name)


Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    # Paths and names with a zero byte, or longer ones, are errors of the operating system.
    return isinstance(value, str) and "\0" not in value and len(value) <= LONGEST_TEXT


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_whole(1, LONGEST_SIDE), value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


_TABLES = ("model", "data", "objective", "code", "run", "search", "finetune", "target", "compare", "thin")
_TEXTS = (
    *("model.spec", "model.weights", "model.fingerprint", "data.data", "data.data_dir", "objective.spec"),
    *("thin.inputs", "code.folder", "run.device", "run.backend", "run.ray_address"),
)
_KINDS: dict[str, tuple[Check, str]] = {
    **{name: (lambda value: isinstance(value, Mapping), "a table") for name in (*_TABLES, "model.options")},
    **dict.fromkeys(_TEXTS, (_is_text, "a short text")),
    "data.image_size": (_is_size, "a list of height and width"),
    "data.image_resize": (_whole(1, LONGEST_SIDE), "a number of pixels"),
    "data.loading_workers": (_whole(0, MOST_WORKERS), f"a number in 0..{MOST_WORKERS}"),
    "data.mean": (_are_numbers, "a list of numbers"),
    "data.std": (_are_numbers, "a list of numbers"),
    "run.workers": (_whole(1, MOST_WORKERS), f"a number in 1..{MOST_WORKERS}"),
    "run.ray_cpus": (_is_number, "a number"),
    "run.ray_gpus": (_is_number, "a number"),
}
_PARSERS: dict[str, Callable[[Any], object]] = {
    "search": lambda table: SearchConfig.from_table(table or {}),
    "finetune": lambda table: FinetuneConfig.from_table(table or {}),
    "target": Limits.of,
}


def check_tables(content: Mapping[str, Any], file: Path) -> Tables:
    """The tables, if all options in them that are checked here have the right type."""
    for name, (fits, expected) in _KINDS.items():
        table, _, key = name.partition(".")
        where = content.get(table, {}) if key else content
        if (key or table) in where and not fits(where[key or table]):
            raise RunError(f"{file}: {name} must be {expected}, got {_short(where[key or table])}; {ADVICE}")
    for name, parse in _PARSERS.items():
        try:
            parse(content.get(name))
        except InputError as error:
            raise RunError(f"{file}, table {name}: {error}; {ADVICE}") from error
    return Tables(content, file)


def _short(value: Any) -> str:
    shown = type(value).__name__ if isinstance(value, (Mapping, list)) else repr(value)
    return shown if len(shown) < 80 else f"{shown[:77]}..."
