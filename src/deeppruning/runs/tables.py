"""The options in a run's config.toml, checked; an error names the file.

>>> Tables({"search": {}}, "config.toml")["run"]
Traceback (most recent call last):
    ...
deeppruning.errors.RunError: config.toml lacks 'run'; restore it from a copy or start a new run
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deeppruning.backends.registry import BACKENDS, BackendOptions
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.data.registry import DataSource
from deeppruning.errors import InputError, RunError
from deeppruning.limits import Limits
from deeppruning.options import Option, Options, described_options, option

ADVICE = "restore it from a copy or start a new run"


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


_TABLES = ("model", "data", "objective", "code", "run", "search", "finetune", "target", "compare", "thin")
_TEXTS = (
    "model.spec",
    "model.weights",
    "model.fingerprint",
    "objective.spec",
    "thin.inputs",
    "code.folder",
    "run.device",
)
_TEXT: Option = option(None, "").metadata["option"]
_PARSERS: dict[str, Callable[[Any], object]] = {
    "search": lambda table: SearchConfig.from_table(table or {}),
    "finetune": lambda table: FinetuneConfig.from_table(table or {}),
    "target": Limits.of,
}


def check_tables(content: Mapping[str, Any], file: Path) -> Tables:
    """The tables, if all options in them have the right type."""
    tables = {name: content[name] for name in _TABLES if name in content}
    tables |= {"model.options": content["model"]["options"]} if "options" in tables.get("model", ()) else {}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise RunError(f"{file}: {name} must be a table, got {type(table).__name__}; {ADVICE}")
    for name, (described, kind) in _described_options().items():
        table, _, key = name.partition(".")
        if key in tables.get(table, ()):
            _checked_with_place(f"{file}", described.check, name, kind, tables[table][key])
    for name, parse in _PARSERS.items():
        _checked_with_place(f"{file}, table {name}", parse, content.get(name))
    return Tables(content, file)


def _described_options() -> dict[str, tuple[Option, Any]]:
    """The options of [data] and [run], and texts that are options nowhere, by "table.name"."""
    configs: dict[str, list[type[Options]]] = {
        "data": [DataSource],
        "run": [BackendOptions, *(kind.options for kind in BACKENDS.values())],
    }
    return dict.fromkeys(_TEXTS, (_TEXT, str)) | {
        f"{table}.{name}": described
        for table, listed in configs.items()
        for config in listed
        for name, described in described_options(config).items()
    }


def _checked_with_place(where: str, check: Callable[..., object], *values: Any) -> None:
    try:
        check(*values)
    except InputError as error:
        raise RunError(f"{where}: {error}; {ADVICE}") from error
