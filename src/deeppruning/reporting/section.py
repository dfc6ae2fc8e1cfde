"""A section of the page: what it shows, as plain data, and its plots for papers.

Every file in `reporting/sections/` adds some. The markup and script of a section are in `template/NAME.html`
and `template/NAME.js`; a heading with a table needs neither, see `table`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deeppruning.registry import Registry
from deeppruning.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = Mapping[str, Any]
Plot = Callable[[Data], "Figure | None"]
TABLES = "tables"  # the key under which the page finds the sections that are a table


@dataclass(frozen=True)
class Source:
    """A run at one instant: its folder, its facts and all rows of its history."""

    run: RunFolder
    facts: Data
    snapshot: Data


@dataclass(frozen=True)
class Section:
    """One section: the entries it adds to the page's data, from the run and what earlier sections added."""

    name: str
    collect: Callable[[Source, Data], Data]
    plots: Mapping[str, Plot] = field(default_factory=dict)  # by the names of their files


SECTIONS: Registry[Section] = Registry("section", "deeppruning.reporting.sections")


def collect_sections(source: Source, data: Data) -> dict[str, Any]:
    """The data with the entries of all sections, in the order of the page."""
    collected = dict(data)
    for section in SECTIONS.values():
        added = section.collect(source, collected)
        collected |= {**added, TABLES: [*collected.get(TABLES, ()), *added.get(TABLES, ())]}
    return collected


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    lead: str = "",
    *,
    folded: bool = False,
) -> Data:
    """What `collect` returns for a section that is a heading, a sentence and a table; folded: heading only.

    >>> table("Sizes", ["network", "MB"], [["thin", 1.5]])["tables"][0]["rows"]
    [['thin', '1.5']]
    """
    if not rows:
        return {}  # no heading over nothing
    texts = [[str(value) for value in row] for row in rows]
    return {
        TABLES: [{"title": title, "lead": lead, "columns": list(columns), "rows": texts, "folded": folded}]
    }
