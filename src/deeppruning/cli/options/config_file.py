"""`--config FILE.toml`: a command's options from a file, under the names of its flags; flags override it.

Keys stand alone or in tables that group them for the reader, with - or _ between words:

    data = "cifar10"
    [search]
    offspring = 20
    eval-epochs = 5
    [finetune]
    epochs = 50        # short for finetune-epochs

A run's own config.toml is such a file too, so this repeats a run:

    deeppruning prune --config runs/mine/config.toml --out runs/again
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deeppruning.backends.registry import address_flags
from deeppruning.cli.options.flags import flag, together
from deeppruning.errors import InputError, unknown
from deeppruning.options import ELSEWHERE
from deeppruning.runs.tables import check_tables
from deeppruning.runs.trust import refuse_foreign_code
from deeppruning.system.toml import read_toml

_FILE = "deeppruning.config"  # under which a command's context keeps the file's path
TABLES = ("data", "finetune", "model", "objective", "run", "search", "train")
# Entries of a run's config.toml that are not options: its format, and what is checked when it is resumed.
_NOTES = {"format", "version", "signature", "model.fingerprint", "code.folder"}
# Names inside a table of a run's config.toml that differ from the flag's.
_LONG_NAMES = {"model.spec": "model", "model.options": "model_option", "objective.spec": "objective"}
_LISTS = {"target": '"flops=40%"', "model_option": '["shortcut=pad"]', "exclude": '["conv1", "layer3.*"]'}


def _apply_config_file(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Make the options of the file the defaults of the command's flags."""
    if path is not None:
        context.default_map = {**(context.default_map or {}), **read_options(path, context.command)}
        context.meta[_FILE] = path


def _check_trust_of_config(context: click.Context, parameter: click.Parameter, trusted: bool) -> None:
    """Refuse code that the config.toml of someone else's run names, unless a flag names it as well."""
    path: Path | None = context.meta.get(_FILE)
    content = {} if path is None or trusted else _read_config_file(path)
    if path is None or not _is_config_of_run(content):
        return
    from_file = [
        kind
        for kind in ("model", "data", "objective", *address_flags())
        if context.get_parameter_source(_config_key(kind)) is ParameterSource.DEFAULT_MAP
    ]
    refuse_foreign_code(path, content, content.get("signature"), from_file)


# The lowest decorator of a command: --trust-run is looked at after all other options.
config_option = together(
    flag(
        "--config",
        heading=ELSEWHERE,
        common=True,
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_apply_config_file,
        metavar="FILE.toml",
        help="File with options under the names of these flags; flags override it.",
    ),
    flag(
        "--trust-run",
        heading=ELSEWHERE,
        is_flag=True,
        expose_value=False,
        callback=_check_trust_of_config,
        help="With --config and the config.toml of a run: run the code that it names, even if someone else "
        "made the run or it was made on another machine.",
    ),
)


def read_options(path: Path, command: click.Command) -> dict[str, Any]:
    """The options in a file as a click default map for this command, names and types checked."""
    content = _read_config_file(path)
    parameters = _flags_by_key(command)
    values: dict[str, Any] = {}
    origins: dict[str, Any] = {}
    for table, key, value in _config_entries(content, path):
        parameter = _flag_for_key(parameters, table, key)
        if parameter is None and key == "target" and _is_config_of_run(content):
            continue  # a command without --target
        if parameter is None:
            names = [name.replace("_", "-") for name in parameters]
            raise InputError(f"config file {path}: {unknown('option', key, names)}")
        name = str(parameter.name)
        if origins.setdefault(name, value) != value:
            raise InputError(f"config file {path} gives {key} twice, as {origins[name]!r} and as {value!r}")
        values[name] = _as_flag_value(path, key, parameter, value)
    return values


def _read_config_file(path: Path) -> dict[str, Any]:
    """The content of the file; the config.toml of a run is checked as such."""
    try:
        content = read_toml(path)
    except OSError as error:
        raise InputError(f"config file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"config file {path} cannot be used: {error}") from error
    return check_tables(content, path) if _is_config_of_run(content) else content


def _is_config_of_run(content: Mapping[str, Any]) -> bool:
    return "format" in content and "version" in content


def _flags_by_key(command: click.Command) -> dict[str, click.Parameter]:
    """The command's parameters by the key that names each in a file."""
    keys: dict[str, click.Parameter] = {}
    for parameter in command.params:
        flags = [name for name in parameter.opts if name.startswith("--")] or [str(parameter.name)]
        if parameter.expose_value and flags[0] != "--help":
            keys[_config_key(flags[0].removeprefix("--"))] = parameter
    return keys


def _config_key(text: str) -> str:
    """The name of a flag as a key of the file."""
    return text.replace("-", "_")


def _config_entries(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    """Table (empty for none), key and value of every option in the file."""
    own_objective = isinstance(content.get("objective"), Mapping)
    notes = _NOTES | ({"search.objective"} if own_objective else set())
    for key, value in content.items():
        if not isinstance(value, Mapping) or _config_key(key) in ("model_option", "target"):
            if key not in _NOTES:
                yield "", key, value
            continue
        if key not in (*TABLES, "code"):
            raise InputError(f"config file {path}: {unknown('table', key, TABLES)}")
        for inner, entry in value.items():
            if f"{key}.{inner}" not in notes:
                yield key, inner, entry


def _flag_for_key(parameters: Mapping[str, click.Parameter], table: str, key: str) -> click.Parameter | None:
    """The flag that a key in a table of the file means."""
    name = _LONG_NAMES.get(f"{table}.{key}", _config_key(key))
    # In [finetune], epochs means finetune-epochs even in a command that has --epochs of another kind.
    return parameters.get(f"{table}_{name}") or parameters.get(name)


def _as_flag_value(path: Path, key: str, parameter: click.Parameter, value: Any) -> Any:
    """The value as click takes it from a default map; a wrong type is an error that names the right one."""
    kind, expected = parameter.type, "text"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if getattr(parameter, "is_flag", False):
        fits, expected = isinstance(value, bool), "true or false"
    elif parameter.multiple:
        if isinstance(value, Mapping):
            return [f"{name}={entry}" for name, entry in value.items()]
        value = [value] if isinstance(value, str) else value
        fits = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        expected = f"a text or a list of texts such as {_LISTS[str(parameter.name).removesuffix('s')]}"
    elif kind.name.startswith("integer"):
        fits, expected = is_number and isinstance(value, int), "a whole number"
    elif kind.name.startswith("float"):
        fits, expected = is_number, "a number"
    elif type(kind).__module__.startswith("deeppruning."):  # takes more than texts, and checks them itself
        try:
            return kind.convert(value, parameter, None)
        except (click.BadParameter, InputError) as error:
            reason = error.message if isinstance(error, click.BadParameter) else error
            raise InputError(f"config file {path}: {key}: {reason}") from error
    else:
        fits = isinstance(value, str)
    if not fits:
        raise InputError(f"config file {path}: {key} must be {expected}, got {value!r}")
    return value
