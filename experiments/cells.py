"""What the tables of results are made of: a line, and how figures are written in it."""

from dataclasses import dataclass, fields
from typing import ClassVar

NOT_RUN = "not run yet"
PAPER = "the paper"


@dataclass(frozen=True)
class Line:
    """One line of a table: its fields are the cells under TITLES, but for network and data set."""

    TITLES: ClassVar[tuple[str, ...]] = ("network", "data")

    @classmethod
    def heading(cls) -> str:
        """The titles, and the line below them."""
        return f"| {' | '.join(cls.TITLES)} |\n|{'---|' * len(cls.TITLES)}\n"

    def text(self, network: str, data: str) -> str:
        """The line as Markdown."""
        cells = (network, data, *(getattr(self, field.name) for field in fields(self)))
        return "| " + " | ".join(cell.replace("|", "\\|") or "-" for cell in cells) + " |\n"


def source(row: str) -> str:
    """Where the figures of a row come from."""
    return f"[record](../../experiments/records/{row}.json), [command](#{row.lower()})"


def share(value: float | None) -> str:
    """A part of one in per cent.

    >>> share(0.0661), share(None)
    ('6.61 %', 'not tested')
    """
    return "not tested" if value is None else percent(100 * value)


def percent(value: float) -> str:
    """Per cent to two places."""
    return f"{value:.2f} %"


def milliseconds(value: float | None) -> str:
    """A latency; empty where none was measured."""
    return "" if value is None else f"{value:.1f} ms"
