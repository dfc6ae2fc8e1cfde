"""What is shown before the first candidate: each step of the preparations, and how far it is."""

import io
from xml.etree import ElementTree

import pytest
from rich.console import Console

from deeppruning.display.lines import as_record, line_of
from deeppruning.display.picture import LiveProgress
from deeppruning.display.state import SearchState
from deeppruning.searching.events import LayersScanned, Remark, Stage, Started

STARTED = Started("run", 4, 1, 3, 0, 0.1, 1000, 20)


def test_a_stage_lasts_until_something_else_happens() -> None:
    state = SearchState()
    state.update(Stage("graph"))
    assert state.headline() == ("analysing the network", 0, 0)
    state.update(Remark("network", "a note"))
    state.update(Stage("orders", 2, 5))
    assert state.headline() == ("ordering filters  2/5", 2, 5)
    state.update(STARTED)
    assert state.headline() == ("generation 1/1  candidate 0/3", 0, 3)
    state.update(Stage("reference"))
    assert state.headline() == ("recording what the original computes", 0, 0)
    state.update(LayersScanned(1, 10))
    assert state.headline() == ("scanning layers  1/10", 1, 10)
    state.update(Stage("own step"))
    assert state.headline()[0] == "own step"


def test_a_stage_has_a_line_at_its_start_and_for_each_quarter() -> None:
    lines = [line_of(Stage("orders", done, 10), SearchState()) for done in range(11)]
    assert [place for place, line in enumerate(lines) if line] == [0, 3, 5, 8, 10]
    assert (lines[0], lines[5]) == ("ordering filters", "ordering filters: 5 of 10")
    assert as_record(Stage("orders", 3, 10)) == ("stage", {"name": "orders", "done": 3, "of": 10})


def test_a_terminal_shows_the_stage_that_is_being_done() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LiveProgress(console) as progress:
        progress(Stage("graph"))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "analysing the network" in drawn
    assert "generation" not in drawn


def test_a_notebook_has_a_bar_without_a_value_where_the_end_is_unknown() -> None:
    pytest.importorskip("IPython")
    from deeppruning.display.notebook import NotebookProgress

    progress = NotebookProgress()
    bars = []
    for event in (Stage("graph"), Stage("orders", 2, 5)):
        progress.state.update(event)
        root = ElementTree.fromstring(f"<div>{progress.markup().replace('&ensp;', ' ')}</div>")
        bars.append(root.find(".//progress").attrib)  # type: ignore[union-attr]
    assert bars == [{"aria-label": "progress"}, {"aria-label": "progress", "value": "2", "max": "5"}]
