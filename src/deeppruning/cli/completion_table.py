"""Write the table that completion reads, from the commands themselves.

python -m deeppruning.cli.completion_table
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.completion import CHOICES, FILE, FLAG, FOLDER, LIST, NAMES, TABLE, TEXT
from deeppruning.cli.main import COMMANDS
from deeppruning.comparison import METHODS
from deeppruning.data.registry import DATA_SETS
from deeppruning.models import list_models
from deeppruning.roles import NETWORKS, target_name

_KINDS = {"model": NAMES, "data": NAMES, "methods": LIST, "device": CHOICES, "solution": CHOICES}
_FOLDERS = ("run", "match", "out", "data_dir")


def completion_table() -> dict[str, Any]:
    """The names of things, and for each command what completes each of its options and arguments."""
    modules = {name: importlib.import_module(f"deeppruning.cli.commands.{name}") for name in COMMANDS}
    return {
        "names": {
            "model": list_models(),
            "data": list(DATA_SETS),
            "methods": ["all", *METHODS],
            "device": ["auto", "cpu", "cuda", "mps"],
            "solution": [*NETWORKS, *(target_name(number) for number in (1, 2, 3))],
        },
        "commands": {
            name: [_row(name, parameter) for parameter in getattr(module, name).params]
            for name, module in modules.items()
        },
    }


def _row(command: str, parameter: click.Parameter) -> dict[str, Any]:
    row: dict[str, Any] = {"name": parameter.name, "flags": [], **_completed(command, parameter)}
    if isinstance(parameter, click.Option):
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        row["flags"] = ["/".join(flags + parameter.secondary_opts)]
        row |= {"multiple": True} if parameter.multiple else {}
    return row


def _completed(command: str, parameter: click.Parameter) -> dict[str, Any]:
    """The kind of a parameter's values, and those that have names."""
    name = str(parameter.name).removeprefix("named_")
    if (command, name) == ("data", "name"):
        name = "data"
    if getattr(parameter, "is_flag", False):
        return {"kind": FLAG}
    if name in _KINDS:
        return {"kind": _KINDS[name], "of": name}
    if isinstance(parameter.type, click.Choice):
        return {"kind": CHOICES, "values": list(map(str, parameter.type.choices))}
    # Many choices are checked by the options themselves, with a better word on a misspelt one.
    written = (parameter.metavar or "").split("|")
    choices = [word for word in written if word and word == word.lower()]
    if choices:
        return {"kind": CHOICES, "values": choices}
    if isinstance(parameter.type, click.Path):
        written_to = (command, name) == ("export", "out")
        return {"kind": FOLDER if name in _FOLDERS and not written_to else FILE}
    return {"kind": TEXT}


def main() -> None:
    """Write it, a line for each option; to another place if one is given."""
    table = completion_table()
    lists = {name: ",\n".join(map(json.dumps, rows)) for name, rows in table["commands"].items()}
    commands = ",\n".join(f'"{name}": [\n{rows}\n]' for name, rows in lists.items())
    text = f'{{"names": {json.dumps(table["names"])},\n"commands": {{\n{commands}\n}}}}\n'
    Path(sys.argv[1] if len(sys.argv) > 1 else TABLE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
