"""What a run looks like from Python: as a table, in a notebook, while it goes on, and as a page."""

import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import deeppruning as dp
from deeppruning.display.picture import LiveProgress
from deeppruning.display.progress import PlainProgress
from deeppruning.display.watching import display_for
from deeppruning.jobs.result import Result
from deeppruning.reporting.recommendation import recommend
from deeppruning.roles import ROLES
from deeppruning.runs import RunFolder
from deeppruning.searching.events import CandidateDone, Event, Stage, Started
from search_helpers import digits, quick_finetune, quick_guided, tiny_net


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    """One run for all the tests of this file; they change nothing in it."""
    train, test = digits()
    yield dp.prune(
        tiny_net(),
        train,
        test,
        run_dir=tmp_path_factory.mktemp("shown") / "<b>run</b>",
        search=quick_guided(generations=2),
        finetune=quick_finetune(epochs=1),
        workers=1,
    )


def test_a_result_prints_as_a_table(result: Result) -> None:
    head, *rows, advice, folder = str(result).splitlines()
    assert head.split() == ["network", "test", "error", "FLOPs", "FLOPs", "saved", "parameters"]
    assert [row.split()[0] for row in rows] == ["original", *ROLES]
    knee = rows[2].split()
    assert knee[1] == f"{100 * result.knee.test_error:.2f}"
    assert knee[-1] == f"{result.knee.params:,}"
    assert folder == f"run folder: {result.run_dir}"
    assert repr(result) == str(result)
    assert advice == result.advice and len(advice) > 20
    with RunFolder.open(result.run_dir, read_only=True) as run:
        found = recommend(run.history.facts())
    assert found is not None and (found.text, found.role) == (advice, result.advised)
    taken = result.recommended
    assert (taken and taken.role) == found.role
    chosen = replace(result, advised="heavy").recommended
    assert chosen is result.heavy and replace(result, advised=None).recommended is None


def test_a_result_shows_a_table_and_the_candidates_in_a_notebook(result: Result) -> None:
    page = ElementTree.fromstring(result._repr_html_())  # well-formed, so nothing of the run is markup
    assert [row[0].text for row in page.iter("tr")] == ["network", "original", *ROLES]
    assert [line.text for line in page.iter("p")][-2:] == [result.advice, f"run folder: {result.run_dir}"]
    groups = {group.get("id"): group for group in page.iter("{http://www.w3.org/2000/svg}g")}
    drawn = list(groups["candidates"].iter("{http://www.w3.org/2000/svg}use"))
    assert len(drawn) == sum(one.train_error is not None for one in result.candidates)


def test_a_result_is_shown_when_its_folder_is_gone(result: Result, tmp_path: Path) -> None:
    page = replace(result, run_dir=tmp_path / "gone")._repr_html_()
    assert "<svg" not in page
    assert page.count("<tr>") == 5


def test_a_result_without_test_data_shows_errors_of_the_search(result: Result) -> None:
    untested = replace(
        result,
        original=replace(result.original, test_error=None),
        picks={role: replace(one, test_error=None) for role, one in result.picks.items()},
    )
    head, _, heavy, *_ = str(untested).splitlines()
    assert "error in the search" in head
    assert heavy.split()[1] == f"{100 * result.heavy.train_error:.2f}"


def test_errors_that_are_no_shares_are_not_in_percent(result: Result) -> None:
    losses = {role: replace(one, test_error=2.5) for role, one in result.picks.items()}
    row = str(replace(result, picks=losses)).splitlines()[2].split()
    assert row[:2] == ["heavy", "2.5"]


def test_a_pick_that_failed_is_named(result: Result) -> None:
    picks = {role: one for role, one in result.picks.items() if role != "light"}
    failed = replace(result, picks=picks, failed={"light": "it <diverged>"})
    lines = str(failed).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["network", "original", "heavy", "knee"]
    assert lines[4] == "light failed: it <diverged>"
    assert "it &lt;diverged&gt;" in failed._repr_html_()


def test_a_solution_prints_in_a_line(result: Result) -> None:
    text = repr(result.knee)
    assert text.startswith(f"Solution(knee, candidate {result.knee.id}, test error ")
    assert f"{result.knee.flops:,} FLOPs" in text
    assert "\n" not in text


@pytest.mark.slow
def test_the_page_is_written_and_what_stops_it_is_only_said(result: Result) -> None:
    page = result.run_dir / "report.html"
    assert "<title>" in page.read_text()
    assert (result.run_dir / "plots" / "population.svg").is_file()
    page.unlink()
    again = (result.run_dir, tiny_net(), *digits())
    dp.resume(*again, report=False)
    assert not page.exists()
    page.mkdir()
    with pytest.warns(UserWarning, match="no report was written") as warned:
        dp.resume(*again)
    assert warned[-1].filename == __file__  # it points at who called
    page.rmdir()
    dp.resume(*again)
    assert page.is_file()


def test_nobody_looks_at_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert display_for(None) is None
    assert display_for(False) is None
    assert type(display_for(True)) is PlainProgress


def test_somebody_looks_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = os.openpty()
    with open(mine), open(theirs, "w") as terminal:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        assert type(display_for(None)) is LiveProgress
        assert display_for(False) is None


@pytest.mark.parametrize("progress", [None, True])
def test_a_search_by_inputs_alone_says_where_it_stands(
    progress: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Event] = []
    options = quick_guided(generations=1, offspring=2)
    inputs = digits()[0].images[:60].float()
    front = dp.search(tiny_net(), inputs, search=options, workers=1, observer=heard.append, progress=progress)
    table = [line.split() for line in str(front).splitlines()[1:]]
    assert [row[0] for row in table] == ["original", *ROLES]
    assert table[2][-1] == f"{front.knee.params:,}"
    assert front._repr_html_().count("<tr>") == 5
    assert heard[:3] == [Stage("data"), Stage("graph"), Stage("widths")]
    started = heard[3]
    assert isinstance(started, Started)
    candidates = [event for event in heard if isinstance(event, CandidateDone)]
    assert len(candidates) == started.evaluations == options.evaluations
    lines = capsys.readouterr().out.splitlines()
    first = ["reading the data", "analysing the network", "measuring which widths are fast here"]
    assert lines[:3] == (first if progress else [])
    fresh = sum(event.fresh for event in candidates)
    assert [line.split()[0] for line in lines].count("candidate") == (fresh if progress else 0)


def test_after_the_search_each_network_that_is_ready_to_be_trained_is_told(tmp_path: Path) -> None:
    train, test = digits()
    heard: list[Event] = []
    dp.prune(
        tiny_net(),
        train,
        test,
        run_dir=tmp_path / "run",
        search=quick_guided(generations=1),
        finetune=quick_finetune(epochs=1),
        workers=1,
        observer=heard.append,
    )
    told = [event for event in heard if isinstance(event, Stage) and event.name == "networks"]
    count = told[0].of
    assert 2 <= count <= 4  # the original and up to three networks
    assert told == [Stage("networks", done, count) for done in range(count + 1)]
    heard.clear()
    dp.resume(tmp_path / "run", tiny_net(), train, test, observer=heard.append)
    assert [event for event in heard if isinstance(event, Stage) and event.name == "networks"] == []
