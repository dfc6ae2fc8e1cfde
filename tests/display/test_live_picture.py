"""The live picture on a terminal begins with what is being done, a fine-tuning by itself included."""

import io

from rich.console import Console

from deeppruning.display.picture import LiveProgress
from deeppruning.searching.events import EpochDone
from deeppruning.training.checkpoint import EpochReport


def test_a_fine_tuning_without_a_search_is_shown() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    report = EpochReport(1, 0.5, 0.2, 0.1, 0.1, 250.0, 4.0)
    with LiveProgress(console) as progress:
        progress(EpochDone(3, ("candidate-3",), 2, report))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "fine-tuning  epoch 1/2" in drawn
    assert "generation" not in drawn


def test_a_target_that_is_none_of_the_picks_has_its_row() -> None:
    console = Console(file=io.StringIO(), width=100)
    progress = LiveProgress(console)
    progress.state.update(EpochDone(3, ("target",), 2, EpochReport(1, 0.5, 0.2, 0.1, 0.1, 250.0, 4.0)))
    console.print(progress.picture())
    rows = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["T", "target", "epoch", "1/2", "test", "error", "10.00", "%"] in rows
