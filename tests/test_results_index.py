"""The tables of all results are current, and hold the figures of the pages that it links to."""

import re

from docs_pages import ROOT
from markdown_tables import anchor, parse_tables, read_section
from results_index import PAGE, RESULTS, page_text

*HEADINGS, LAST = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
TABLE = [
    {"network": heading.split(", ")[0], **row}
    for heading, rows in zip(HEADINGS, parse_tables(PAGE.read_text()), strict=True)
    for row in rows
]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page_text(), "run `python tools/results_index.py`"


def test_each_network_and_data_set_has_one_table() -> None:
    assert LAST == "Pages" and len(HEADINGS) == len(set(HEADINGS)) > 5


def test_every_line_leads_to_its_command() -> None:
    linked = {link for row in TABLE for link in re.findall(r"\]\(([^)]+)\)", row["how"])}
    pages = {page: (RESULTS / page).read_text() for page in {link.split("#")[0] for link in linked}}
    known = {
        f"{page}#{anchor(heading)}"
        for page, text in pages.items()
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    assert linked <= known and len(linked) > 10
    quoted = {row["method"] for row in TABLE if not row["how"].startswith("[")}
    assert quoted == {"the paper"}


def test_figures_are_those_of_the_pages() -> None:
    rows = read_section(RESULTS / "rivals.md", "ResNet20 at 75, 38 and 21 % of the FLOPs").tables[1]
    (cell,) = [row["38 %"] for row in rows if row["method"] == "guided"]
    shown = [
        f"{row['untrained']} → {row['trained']}"
        for row in TABLE
        if (row["method"], row["FLOPs left"], row["after"])
        == ("ours, guided", "38.0 %", "32 steps, falling rate")
    ]
    assert shown == [cell]
    knees = [
        row for row in TABLE if row["how"].startswith("[resnet56-cifar10]") and row["FLOPs left"] == "40.8 %"
    ]
    assert [(row["original"], row["untrained"], row["trained"]) for row in knees] == [
        ("6.61", "11.75", "7.30")
    ]


def test_where_we_lose_is_shown() -> None:
    worse = [row for row in TABLE if row["method"] == "l1+refit" and row["untrained"] == "30.0"]
    assert len(worse) == 1 and worse[0]["network"] == "MobileNet v2"


def test_the_readme_leads_there() -> None:
    assert "(docs/results/index.md)" in (ROOT / "README.md").read_text()
