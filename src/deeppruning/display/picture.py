"""The live picture of a search on a terminal: progress, the three picks, the candidates as a plot."""

import sys
import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeppruning.amounts import amount, duration, percent
from deeppruning.display.lines import line_of
from deeppruning.display.progress import JsonProgress, PlainProgress, RunOutcome, SearchProgress
from deeppruning.display.state import Point
from deeppruning.roles import HEAVY, KNEE, LIGHT, MARKS, TARGET
from deeppruning.runs import Status
from deeppruning.searching.events import (
    CandidateDone,
    EpochDone,
    Event,
    FinetuneDiverged,
    FinetunePlanned,
    Remark,
    SolutionSaved,
    Stage,
    Started,
)

_PLOT_COLUMNS, _PLOT_ROWS = 60, 12
_ROWS_BESIDE_PLOT = 15  # progress, nodes, archive, picks, axis and the shell's prompt
_COLOURS = {
    MARKS[HEAVY]: "bold green",
    MARKS[KNEE]: "bold yellow",
    MARKS[LIGHT]: "bold cyan",
    MARKS[TARGET]: "bold magenta",
}


class LiveProgress(PlainProgress):
    """A picture that is redrawn as things happen; remarks scroll by above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._updated = self._staged = time.monotonic()
        self._live = Live(get_renderable=self.picture, console=console, refresh_per_second=2)

    def __enter__(self) -> "LiveProgress":
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a remark above the live picture."""
        self._console.print(Text(text))

    def show(self, event: Event) -> None:
        """Redraw; say only what the picture does not show."""
        self._updated = time.monotonic()
        if isinstance(event, Stage) and not event.done:
            self._staged = self._updated
        troubled = isinstance(event, CandidateDone) and (
            event.candidate.status is not Status.OK or event.attempts > 1
        )
        if troubled or isinstance(
            event, Started | SolutionSaved | Remark | FinetuneDiverged | FinetunePlanned
        ):
            line = line_of(event, self.state)
            if line:
                self.say(line)
        # The first event starts it, or it would begin with an empty picture; a candidate that is fine-tuned
        # by itself has no search before it.
        if isinstance(event, Stage | Started | EpochDone):
            self._live.start(refresh=True)

    def finish(self, outcome: RunOutcome) -> None:
        """Stop drawing; the last picture stays above the final table."""
        self._live.stop()
        super().finish(outcome)

    def picture(self) -> RenderableType:
        """What is on the screen now."""
        state = self.state
        parts: list[RenderableType] = [self._progress_headline()]
        if state.picks or state.epochs:
            parts.append(self._picks_so_far())
        rows = min(_PLOT_ROWS, self._console.height - _ROWS_BESIDE_PLOT)
        columns = min(_PLOT_COLUMNS, self._console.width - 12)
        if state.candidates and rows >= 5 and columns >= 20:
            parts.append(self._plot_of_candidates(columns, rows))
        return Group(*parts)

    def _progress_headline(self) -> RenderableType:
        state = self.state
        what, done, total = state.headline()
        left = state.seconds_left()
        since = time.monotonic() - self._updated
        eta = "" if left is None else f"{duration(max(0.0, left - since))} left"
        line = Table.grid(padding=(0, 2))
        if state.stage is not None:
            eta = f"for {duration(time.monotonic() - self._staged)}"
        bar = ProgressBar(total=total or None, completed=done, width=24)  # of None it moves to and fro
        line.add_row(what, bar, eta, Text(state.troubles(), "red"))
        below = [Text(text, "dim") for text in (state.by_node(), state.archive) if text]
        return Group(line, *below)

    def _picks_so_far(self) -> RenderableType:
        state = self.state
        table = Table.grid(padding=(0, 2))
        for role, pick in state.picks.items():
            figures = (
                f"{state.judged_by} {percent(pick.train_error)}",
                f"FLOPs -{percent(state.saved(pick), 1)}",
            )
            tuned = [
                cell for roles, epoch in state.epochs.items() if role in roles for cell in _epoch_cells(epoch)
            ]
            table.add_row(_mark_of_role(role), Text(role), *map(Text, figures), *tuned)
        for roles, epoch in state.epochs.items():
            if not state.picks.keys() & {*roles}:  # a target or a candidate that is none of the three
                table.add_row(
                    _mark_of_role(roles[0]), Text("+".join(roles)), Text(""), Text(""), *_epoch_cells(epoch)
                )
        return table

    def _plot_of_candidates(self, columns: int, rows: int) -> RenderableType:
        plain = not self._console.encoding.lower().startswith("utf")
        drawn = Text(scatter(self.state.points(plain=plain), width=columns, height=rows, plain=plain))
        for mark, colour in _COLOURS.items():
            drawn.highlight_regex(rf"(?<![\w.]){mark}", colour)
        return Group(Text(f"{self.state.judged_by} on the sample", "dim"), drawn)


def _mark_of_role(role: str) -> Text:
    return Text(MARKS[role], _COLOURS[MARKS[role]]) if role in MARKS else Text("")


def _epoch_cells(epoch: EpochDone) -> list[Text]:
    """The progress of a fine-tuning, as cells of the table."""
    test = epoch.report.test_error
    shown = "" if test is None else f"test error {percent(test)}"
    return [Text(f"epoch {epoch.report.epoch}/{epoch.epochs}"), Text(shown)]


def scatter(points: Iterable[Point], *, width: int = 56, height: int = 12, plain: bool = False) -> str:
    """Error against FLOPs in characters; `plain` for terminals without line characters.

    >>> print(scatter([Point(1000, 0.5, "."), Point(2500, 0.1, "K")], width=24, height=3))
     50.0 % │.
            │
     10.0 % │                       K
            └────────────────────────
             1.00 k   FLOPs    2.50 k
    """
    shown = list(points)
    left, right = _axis_range([point.flops for point in shown])
    low, high = _axis_range([point.error for point in shown])
    cells = [[" "] * width for _ in range(height)]
    for point in shown:  # later ones over earlier ones
        column = _cell_on_axis(point.flops, left, right, width)
        row = height - 1 - _cell_on_axis(point.error, low, high, height)
        cells[row][column] = point.mark
    side, corner, line = ("|", "+", "-") if plain else ("│", "└", "─")
    labels = {0: percent(high, 1), height - 1: percent(low, 1)}
    rows = [f"{labels.get(row, ''):>7} {side}{''.join(cells[row])}".rstrip() for row in range(height)]
    first, last = amount(left, like=right), amount(right)
    axis = f"{first}{'FLOPs':^{width - len(first) - len(last)}}{last}"
    return "\n".join([*rows, f"{'':8}{corner}{line * width}", f"{'':9}{axis}"])


def _axis_range(values: list[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (0.0, 1.0)


def _cell_on_axis(value: float, low: float, high: float, cells: int) -> int:
    return round((value - low) / (high - low) * (cells - 1)) if high > low else 0


def make_progress(*, quiet: bool, as_json: bool) -> SearchProgress:
    """The display for these flags and this output."""
    if as_json:
        return JsonProgress()
    if quiet:
        return SearchProgress()
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console)
    # A pipe or a log gets the lines as they come.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return PlainProgress()
