"""Write what follows from the commands' options: the table for shell completion and those of docs/options.md.

python tools/option_tables.py
"""

import importlib
import json
import re
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

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
_HEAD = "| option | meaning and [default] |\n|---|---|\n"
_KINDS = {"model": NAMES, "data": NAMES, "methods": LIST, "device": CHOICES, "solution": CHOICES}
_FOLDERS = ("run", "match", "out", "data_dir")


def command_of(name: str) -> click.Command:
    """The command of this name."""
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    assert isinstance(command, click.Command)
    return command


def completion_table() -> str:
    """The names of things, and what completes each option and argument of each command; a line per option."""
    names = {
        "model": list_models(),
        "data": list(DATA_SETS),
        "methods": ["all", *METHODS],
        "device": ["auto", "cpu", "cuda", "mps"],
        "solution": [*NETWORKS, *(target_name(number) for number in (1, 2, 3))],
    }
    commands = []
    for name in COMMANDS:
        rows = [json.dumps(_completion_row(name, parameter)) for parameter in command_of(name).params]
        commands.append(f'"{name}": [\n' + ",\n".join(rows) + "\n]")
    return f'{{"names": {json.dumps(names)},\n"commands": {{\n' + ",\n".join(commands) + "\n}}\n"


def _completion_row(command: str, parameter: click.Parameter) -> dict[str, Any]:
    row: dict[str, Any] = {"name": parameter.name, "flags": [], **_values(command, parameter)}
    if isinstance(parameter, click.Option):
        flags = [flag for flag in parameter.opts if flag.startswith("--")]
        row["flags"] = ["/".join(flags + parameter.secondary_opts)]
        row |= {"multiple": True} if parameter.multiple else {}
    return row


def _values(command: str, parameter: click.Parameter) -> dict[str, Any]:
    """The kind of a parameter's values, and those that have names."""
    name = str(parameter.name).removeprefix("named_")
    if (command, name) == ("data", "name"):
        name = "data"
    if getattr(parameter, "is_flag", False):
        return {"kind": FLAG}
    if name in _KINDS:
        return {"kind": _KINDS[name], "of": name}
    if choices := _choices(parameter):
        return {"kind": CHOICES, "values": choices}
    if isinstance(parameter.type, click.Path):
        is_file = (command, name) == ("export", "out")
        return {"kind": FOLDER if name in _FOLDERS and not is_file else FILE}
    return {"kind": TEXT}


def _choices(parameter: click.Parameter) -> list[str]:
    """The values to choose from; most are listed in the metavar, because the configs check them."""
    if isinstance(parameter.type, click.Choice):
        return list(map(str, parameter.type.choices))
    words = (parameter.metavar or "").split("|")
    return [word for word in words if word and word == word.lower()]


def options_page(text: str) -> str:
    """The page with new tables, one in each section about a command."""

    def section(match: re.Match[str]) -> str:
        return f"{match[1]}{_HEAD}{_rows(match[2])}"

    return re.sub(
        r"(\n## deeppruning (\w+)\n.*?)" + re.escape(_HEAD) + r"(?:\|[^\n]*\n)*",
        section,
        text,
        flags=re.DOTALL,
    )


def _rows(name: str) -> str:
    options = [each for each in command_of(name).params if isinstance(each, click.Option)]
    if name == "compare":  # its own ones; it takes those of `prune` as well
        others = {each.opts[0] for each in command_of("prune").params} - {"--out"}
        options = [each for each in options if each.opts[0] not in others]
    return "".join(_row(each) for each in options)


def _row(option: click.Option) -> str:
    flags = [flag for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")]
    about, choices = str(option.help), _choices(option)
    note = about.rfind(" [")
    if any(choice not in about[:note] for choice in choices):
        about = f"{about[:note]} One of {', '.join(choices)}.{about[note:]}"
    return f"| {', '.join(f'`{flag}`' for flag in flags)} | {about.replace('|', chr(92) + '|')} |\n"


def main() -> None:
    """Write both, or print them with the option to do so, so that a test can compare."""
    table, page = completion_table(), options_page(PAGE.read_text(encoding="utf-8"))
    if "--print" in sys.argv:
        print(json.dumps([table, page]))
    else:
        TABLE.write_text(table, encoding="utf-8")
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
