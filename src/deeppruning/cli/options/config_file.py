"""`--config FILE.toml`: a command's options from a file, under the names of its flags; flags win.

Keys stand alone or in tables that group them for the reader, with - or _ between their words:

    data = "cifar10"
    [search]
    offspring = 20
    eval-epochs = 5
    [finetune]
    epochs = 50        # short for finetune-epochs, which is as good

A run's own config.toml is such a file too, so that this repeats a run:

    deeppruning prune --config runs/mine/config.toml --out runs/again
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deeppruning.backends.registry import backend_flags
from deeppruning.cli.options.headings import FROM_ELSEWHERE, Command, under
from deeppruning.cli.options.trust import TRUST
from deeppruning.errors import InputError, unknown
from deeppruning.runs.tables import check_tables
from deeppruning.runs.trust import refuse_foreign_code
from deeppruning.system.toml import read_toml

_FILE = "deeppruning.config"  # under which a command's context keeps the file's path
TABLES = ("data", "finetune", "model", "objective", "run", "search", "train")
# What a run's config.toml holds beside options: how it was written, and what it must find again.
_NOTES = {"format", "version", "signature", "model.fingerprint", "code.folder"}
# The names that a run's config.toml uses inside a table, where the flag is called otherwise.
_LONG_NAMES = {"model.spec": "model", "model.options": "model_option", "objective.spec": "objective"}


_LAYERS = '["conv1", "layer3.*"]'
_LISTS = {"target": '"flops=40%"', "model_option": '["shortcut=pad"]'}  # examples where it is not layers


def _apply(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.default_map = {**(context.default_map or {}), **read_options(path, context.command)}
        context.meta[_FILE] = path


def _check_trust(context: click.Context, parameter: click.Parameter, trusted: bool) -> None:
    """Refuse code that the config.toml of someone else's run names, unless it is named here as well."""
    path: Path | None = context.meta.get(_FILE)
    if path is None or trusted or not _is_of_a_run(_read(path)):
        return
    addresses = [option.flag for _, option in backend_flags().values() if option.is_address]
    from_file = [
        kind
        for kind in ("model", "data", "objective", *addresses)
        if context.get_parameter_source(_key(kind)) is ParameterSource.DEFAULT_MAP
    ]
    content = _read(path)
    refuse_foreign_code(path, content, content.get("signature"), from_file)


def config_option(command: Command) -> Command:
    """Adds --config and, for the config.toml of a run made elsewhere, --trust-run.

    To be the lowest decorator: --trust-run is looked at when all others are known.
    """
    trust = click.option("--trust-run", is_flag=True, expose_value=False, callback=_check_trust, help=TRUST)
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_apply,
        metavar="FILE.toml",
        help="A file with options under the names of these flags; flags given here win.",
    )
    return under(FROM_ELSEWHERE, config, trust)(command)


def read_options(path: Path, command: click.Command) -> dict[str, Any]:
    """The options in a file as a click default map for this command, names and types checked."""
    content = _read(path)
    parameters = _by_key(command)
    values: dict[str, Any] = {}
    origins: dict[str, Any] = {}
    for table, key, value in _entries(content, path):
        found = _find(parameters, table, key)
        if found is None and key == "target" and _is_of_a_run(content):
            continue  # a command that chooses nothing
        if found is None:
            raise InputError(f"config file {path}: {unknown('option', key, _shown(parameters))}")
        name = str(found.name)
        if origins.setdefault(name, value) != value:
            raise InputError(f"config file {path} gives {key} twice, as {origins[name]!r} and as {value!r}")
        values[name] = _as_flag_value(path, key, found, value)
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_toml(path)
    except OSError as error:
        raise InputError(f"config file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"config file {path} cannot be used: {error}") from error
    return check_tables(content, path) if _is_of_a_run(content) else content


def _is_of_a_run(content: Mapping[str, Any]) -> bool:
    return "format" in content and "version" in content


def _by_key(command: click.Command) -> dict[str, click.Parameter]:
    """The command's parameters by the key that names each in a file."""
    keys: dict[str, click.Parameter] = {}
    for parameter in command.params:
        flags = [flag for flag in parameter.opts if flag.startswith("--")] or [str(parameter.name)]
        if parameter.expose_value and flags[0] != "--help":
            keys[_key(flags[0].removeprefix("--"))] = parameter
    return keys


def _key(text: str) -> str:
    return text.replace("-", "_")


def _shown(parameters: Mapping[str, click.Parameter]) -> list[str]:
    return [key.replace("_", "-") for key in parameters]


def _entries(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    """Table (empty for none), key and value of everything in the file that is an option."""
    own_objective = isinstance(content.get("objective"), Mapping)
    notes = _NOTES | ({"search.objective"} if own_objective else set())
    for key, value in content.items():
        if not isinstance(value, Mapping) or _key(key) in ("model_option", "target"):
            if key not in _NOTES:
                yield "", key, value
            continue
        if key not in (*TABLES, "code"):
            raise InputError(f"config file {path}: {unknown('table', key, TABLES)}")
        for inner, entry in value.items():
            if f"{key}.{inner}" not in notes:
                yield key, inner, entry


def _find(parameters: Mapping[str, click.Parameter], table: str, key: str) -> click.Parameter | None:
    wanted = _LONG_NAMES.get(f"{table}.{key}", _key(key))
    # In [finetune], epochs means finetune-epochs even in a command that has --epochs of another kind.
    return parameters.get(f"{table}_{wanted}") or parameters.get(wanted)


def _as_flag_value(path: Path, key: str, parameter: click.Parameter, value: Any) -> Any:
    """The value in the form click takes from a default map; a wrong type is an error naming the right one."""
    kind, wanted = parameter.type, "text"
    if getattr(parameter, "is_flag", False):
        fits, wanted = isinstance(value, bool), "true or false"
    elif parameter.multiple:
        if isinstance(value, Mapping):
            return [f"{name}={entry}" for name, entry in value.items()]
        value = [value] if isinstance(value, str) else value
        example = _LISTS.get(_key(key), _LAYERS)
        fits, wanted = _is_list(value, str), f"a text or a list of texts such as {example}"
    elif kind.name.startswith("integer"):
        fits, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif kind.name.startswith("float"):
        fits, wanted = isinstance(value, (int, float)) and not isinstance(value, bool), "a number"
    elif key in ("mean", "std"):
        fits, wanted = isinstance(value, str) or _is_list(value, (int, float)), "a list of numbers"
        value = ",".join(map(str, value)) if isinstance(value, list) else value
    elif _key(key) == "candidate_timeout":
        fits = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        value, wanted = str(value), "a number of seconds, auto or off"
    elif _key(key) == "image_size":
        value = [value, value] if isinstance(value, int) and not isinstance(value, bool) else value
        fits = isinstance(value, str) or (_is_list(value, int) and len(value) == 2)
        wanted = "a side, or a list of height and width"
        value = "x".join(map(str, value)) if isinstance(value, list) else value
    else:
        fits = isinstance(value, str)
    if not fits:
        raise InputError(f"config file {path}: {key} must be {wanted}, got {value!r}")
    return value


def _is_list(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)
