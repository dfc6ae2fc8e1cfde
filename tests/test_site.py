"""The documentation site: every page has its place, every public name its entry, every link its end."""

import importlib
import json
import os
import re
from pathlib import Path

import pytest

import deeppruning
from docs_pages import (
    BROUGHT,
    ROOT,
    brought_page,
    linked_sources,
    notebook_markdown,
    source_place,
    with_site_links,
)

DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
NAVIGATION = re.findall(
    r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1], re.MULTILINE
)


def test_every_page_has_one_place_in_the_navigation() -> None:
    assert sorted(NAVIGATION) == sorted([*PAGES, *BROUGHT])


def test_every_public_name_has_one_entry() -> None:
    entries = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    entered = {entry.rsplit(".", 1)[1]: entry.rsplit(".", 1)[0] for entry in entries}
    assert len(entered) == len(entries)
    assert set(deeppruning.__all__) <= entered.keys()
    # The entry of a name is what the name stands for, wherever it is defined.
    found = {name: getattr(importlib.import_module(home), name) for name, home in entered.items()}
    assert [name for name in deeppruning.__all__ if found[name] is not getattr(deeppruning, name)] == []


@pytest.mark.parametrize("page", [*PAGES, *BROUGHT])
def test_links_lead_to_what_the_site_has(page: str) -> None:
    origin = BROUGHT.get(page, f"docs/{page}")
    text = brought_page(page) if page in BROUGHT else with_site_links((DOCS / page).read_text(), origin, page)
    sources = linked_sources((ROOT / origin).read_text(), origin)
    known = {*NAVIGATION, *map(source_place, sources), "tutorial.ipynb"}
    prose = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    targets = [os.path.normpath(Path(page).parent / link) for link in links]
    assert [one for one in targets if one not in known and not (DOCS / one).is_file()] == []


@pytest.mark.parametrize(
    ("origin", "page", "link", "turned"),
    [
        ("docs/latency.md", "latency.md", "../benchmarks/README.md#depthpy", "benchmarks.md#depthpy"),
        ("docs/results/rivals.md", "results/rivals.md", "../../README.md", "../index.md"),
        ("docs/results/rivals.md", "results/rivals.md", "rivals.svg", "rivals.svg"),
        ("docs/coverage.md", "coverage.md", "../benchmarks/surgery.py", "files/benchmarks/surgery.py.md"),
        ("benchmarks/README.md", "benchmarks.md", "../docs/coverage.md", "coverage.md"),
        ("examples/tutorial.ipynb", "tutorial.md", "../docs/python.md", "python.md"),
        ("docs/python.md", "python.md", "https://pytorch.org", "https://pytorch.org"),
        ("docs/python.md", "python.md", "no-such-page.md", "no-such-page.md"),
    ],
)
def test_links_are_turned(origin: str, page: str, link: str, turned: str) -> None:
    assert with_site_links(f"a [b]({link}).", origin, page) == f"a [b]({turned})."


def test_a_notebook_becomes_a_page() -> None:
    cells = [{"cell_type": "markdown", "source": ["# A\n", "b"]}, {"cell_type": "code", "source": ["1"]}]
    assert notebook_markdown(json.dumps({"cells": cells})) == "# A\nb\n\n```python\n1\n```\n"
    assert brought_page("tutorial.md").count("\n# ") == 0
