"""What the tab key completes: commands, options, choices and names, out of a table and so without torch.

The commands themselves are slow to import. `completion.json` has what can be completed of each; it is written
by `python tools/option_tables.py`.
"""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

TABLE = Path(__file__).with_name("completion.json")
# Kinds of values: what a parameter's entry in the table has under "kind".
FLAG, CHOICES, NAMES, LIST, FILE, FOLDER, TEXT = "flag", "choices", "names", "list", "file", "folder", "text"


def light_command(name: str, about: str) -> click.Command | None:
    """A stand-in for a command that knows its options and does nothing; None for one not in the table."""
    rows = _completion_table()["commands"].get(name)
    if rows is None:
        return None
    return click.Command(name, params=[_light_parameter(row) for row in rows], help=about)


@cache
def _completion_table() -> dict[str, dict[str, Any]]:
    """The table of commands and options, written by tools/option_tables.py."""
    table: dict[str, dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def _light_parameter(row: dict[str, Any]) -> click.Parameter:
    """An option or argument as the tab key needs it, from its row of the table."""
    kind, values = row["kind"], _completion_table()["names"].get(row.get("of", ""), row.get("values", []))
    holds = click.Path(file_okay=kind == FILE) if kind in (FILE, FOLDER) else click.STRING
    complete = _completer_of(kind, values) if values else None
    if not row["flags"]:
        return click.Argument([row["name"]], type=holds, required=False, shell_complete=complete)
    return click.Option(
        [row["name"], *row["flags"]],
        type=click.BOOL if kind == FLAG else holds,
        is_flag=kind == FLAG,
        multiple=row.get("multiple", False),
        shell_complete=complete,
    )


def _completer_of(kind: str, values: Sequence[str]) -> Any:
    """A function that completes one of some values, or one of a list with commas."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",") if kind == LIST else ("", "", incomplete)
        items = [CompletionItem(f"{before}{comma}{value}") for value in values if value.startswith(last)]
        # A network or data may also be a file of the user's own.
        return items if items or kind != NAMES else [CompletionItem(incomplete, type="file")]

    return complete
