"""Reads the tables of a page of the documentation, so that a figure is written in one place only."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Row = Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """What stands under a heading: its text, and its tables as rows of cells by their titles."""

    heading: str
    text: str
    tables: Sequence[Sequence[Row]]

    def find(self, pattern: str) -> str:
        """What the group of a pattern matches in the text, read as one line."""
        found = re.search(pattern, " ".join(self.text.split()))
        if found is None:
            raise ValueError(f"nothing under {self.heading!r} matches {pattern!r}")
        return found[1]


def read_section(page: Path, heading: str) -> Section:
    """The part of a page from a heading to the next one of any level."""
    text = page.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{page.name} has no heading {heading!r}")
    return Section(heading, found[1], parse_tables(found[1]))


def parse_tables(text: str) -> list[list[dict[str, str]]]:
    """Every table of a text; bold and code marks of its cells are left out.

    >>> parse_tables("| a | b |\\n|---|---|\\n| **1** | `x` |\\n")
    [[{'a': '1', 'b': 'x'}]]
    """
    tables = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text + "\n", re.MULTILINE):
        titles, _, *rows = [_cells(line) for line in block.splitlines()]
        tables.append([dict(zip(titles, row, strict=True)) for row in rows])
    return tables


def anchor(heading: str) -> str:
    """Where a link to a heading leads.

    >>> anchor("ResNet20 at 75, 38 and 21 % of the FLOPs")
    'resnet20-at-75-38-and-21-of-the-flops'
    """
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")


def _cells(line: str) -> list[str]:
    return [re.sub(r"\*\*|`", "", cell).strip() for cell in line.strip().strip("|").split("|")]
