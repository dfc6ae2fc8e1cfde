"""What a terminal says of a guided search: how the archive grows, and who filled it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from deeppruning.display import state
from deeppruning.display.lines import as_record
from deeppruning.display.picture import LiveProgress
from deeppruning.display.progress import PlainProgress
from deeppruning.display.state import growth_line, origins_line, range_of
from deeppruning.runs import Candidate, RunFolder
from deeppruning.runs.archive_replay import CostRange, cost_range, replay, sources
from deeppruning.searching.events import CandidateDone, GenerationDone, Started
from guided_runs import GENERATIONS, PRICE, RANGE, SEARCH, make_guided_run
from report_runs import make_run

WITHIN = CostRange(**RANGE)
FLOPS = int(PRICE.sum())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_guided_run(tmp_path_factory.mktemp("guided") / "run")[0]


@pytest.fixture(scope="module")
def candidates(run: Path) -> list[Candidate]:
    with RunFolder.open(run, read_only=True) as folder:
        return folder.history.candidates()


def heard(progress: PlainProgress, candidates: list[Candidate], within: CostRange | None) -> None:
    """Tell a display of the whole search, the candidates of a generation in an order of their own."""
    progress(Started("run", 48, GENERATIONS, len(candidates), 0, 0.05, FLOPS, 48))
    progress.state.within = within
    for generation in range(1, GENERATIONS + 1):
        born = [one for one in candidates if one.generation == generation]
        for one in reversed(born):
            progress(CandidateDone(one, fresh=True))
        picks = dict.fromkeys(("heavy", "knee", "light"), born[1])
        progress(GenerationDone(generation, GENERATIONS, picks, FLOPS))


def test_the_line_tells_bins_and_three_places(candidates: list[Candidate]) -> None:
    found = replay(WITHIN, candidates)
    new = len(set(found.fronts[GENERATIONS]) - set(found.fronts[GENERATIONS - 1]))
    shown = [candidates[found.front[place]] for place in (2, 4, 6)]  # of eight bins, all of them filled
    spots = ", ".join(
        f"{100 * one.evaluated.error:.1f} % at -{100 - 100 * one.flops / FLOPS:.0f} % FLOPs" for one in shown
    )
    assert growth_line(WITHIN, candidates, FLOPS) == f"archive 8/8 cost ranges (+{new}): {spots}"


def test_an_empty_archive_is_told_too(candidates: list[Candidate]) -> None:
    assert growth_line(WITHIN, candidates[:1], FLOPS) == "archive 0/8 cost ranges (+0)"


def test_lines_and_picture_show_it(candidates: list[Candidate], capsys: pytest.CaptureFixture[str]) -> None:
    plain = PlainProgress()
    heard(plain, candidates, WITHIN)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("generation")]
    assert len(lines) == GENERATIONS
    first = len(replay(WITHIN, candidates).fronts[1])
    assert first > 3 and f"| archive {first}/8 cost ranges (+{first}): " in lines[0]
    assert plain.state.archive in lines[-1]

    console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True, color_system=None)
    live = LiveProgress(console)
    with live:
        heard(live, candidates, WITHIN)
        console.print(live.picture())
    assert live.state.archive == plain.state.archive
    assert live.state.archive in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_run_of_the_paper_says_nothing_of_it(
    candidates: list[Candidate], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = make_run(tmp_path / "run")
    assert range_of(str(path)) is None
    assert range_of(str(tmp_path / "none")) is None
    with RunFolder.open(path, read_only=True) as opened:
        assert origins_line(opened) == ""
    heard(PlainProgress(), candidates, None)
    assert "archive" not in capsys.readouterr().out


def test_the_last_line_counts_who_entered(
    run: Path, candidates: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "cost_range", lambda search: cost_range(SEARCH))
    rows = sources(candidates, replay(WITHIN, candidates))
    with RunFolder.open(run, read_only=True) as opened:
        line = origins_line(opened)
    assert line == ", ".join(f"{row.name} {row.entered} of {row.tried}" for row in rows)
    assert range_of(str(run)) == WITHIN


def test_machines_are_told_origin_and_score(candidates: list[Candidate]) -> None:
    child = next(one for one in candidates if len(one.parents) == 2 and one.evaluated.score is not None)
    kind, facts = as_record(CandidateDone(child, fresh=True))
    assert (kind, facts["operator"], facts["parents"]) == ("candidate", "cross", list(child.parents))
    assert facts["score"] == child.evaluated.score
