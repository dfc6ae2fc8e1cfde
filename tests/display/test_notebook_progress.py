"""The progress in a notebook, by the display machinery of IPython itself."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deeppruning.display.notebook import NotebookProgress, in_notebook
from deeppruning.display.watching import display_for
from deeppruning.roles import ROLES
from deeppruning.runs.records import Candidate, Evaluation
from deeppruning.searching.events import CandidateDone, Event, GenerationDone, Started

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


@pytest.fixture
def shell() -> Iterator[Any]:
    """A shell as that of a notebook, which has a kernel behind it."""
    made: Any = InteractiveShell.instance()
    made.kernel = object()
    yield made
    InteractiveShell.clear_instance()


def events() -> Iterator[Event]:
    """A search of one generation."""
    genome = np.ones(4, dtype=np.bool_)
    evaluation = Evaluation(
        genome=genome, error=0.25, cost=500.0, flops=500, params=10, seconds=1.0, worker="host:1"
    )
    candidate = Candidate(0, 1, genome, evaluation)
    yield Started("<run>", 4, 1, 3, 0, 0.1, 1000, 20)
    yield from [CandidateDone(candidate, True)] * 3
    yield GenerationDone(1, 1, dict.fromkeys(ROLES, candidate), 1000)


def test_one_output_is_drawn_anew(shell: Any) -> None:
    with capture_output() as captured, NotebookProgress() as progress:
        for event in events():
            progress(event)
    _, *later = captured.outputs
    assert len(later) >= 2
    assert [output.update for output in later] == [True] * len(later)
    assert len({output.transient["display_id"] for output in captured.outputs}) == 1
    markup = later[-1].data["text/html"].replace("&ensp;", " ")
    last = ElementTree.fromstring(f"<div>{markup}</div>")
    bar = last.find(".//progress")
    assert (bar.get("value"), bar.get("max")) == ("3", "3")
    assert [row[0].text for row in last.iter("tr")][1:] == list(ROLES)
    assert [cell.text for cell in last.iter("td")][:2] == ["25.00 %", "50.0 %"]
    assert later[-1].data["text/plain"] == "search done"


def test_a_notebook_is_known_by_its_kernel(shell: Any) -> None:
    assert in_notebook()
    assert type(display_for(None)) is NotebookProgress
    assert display_for(False) is None
    shell.kernel = None
    assert not in_notebook()
    assert display_for(None) is None
