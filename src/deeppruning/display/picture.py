"""The live picture of a search on a terminal: progress, the three picks, the population as a plot."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeppruning.amounts import duration, percent
from deeppruning.display.progress import (
    PlainProgress,
    diverged_line,
    is_troubled,
    saved_line,
    started_line,
)
from deeppruning.display.scatter import scatter
from deeppruning.roles import HEAVY, KNEE, LIGHT, MARKS, TARGET
from deeppruning.searching.events import (
    CandidateDone,
    EpochDone,
    Event,
    FinetuneDiverged,
    Remark,
    SolutionSaved,
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
    """A picture that is drawn anew as things happen; remarks scroll by above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._heard = time.monotonic()
        self._live = Live(get_renderable=self.picture, console=console, refresh_per_second=2)

    def __enter__(self) -> "LiveProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print the remark above the picture."""
        self._console.print(Text(text))

    def show(self, event: Event) -> None:
        """Redraw; say only what the picture does not."""
        self._heard = time.monotonic()
        if isinstance(event, Started):
            self.say(started_line(event))
            self._live.start(refresh=True)  # or it begins with a picture from before anything was heard
        elif isinstance(event, EpochDone):
            self._live.start(refresh=True)  # where a candidate is fine-tuned by itself, no search was started
        elif isinstance(event, SolutionSaved):
            self.say(saved_line(event))
        elif isinstance(event, Remark):
            self.say(event.text)
        elif isinstance(event, FinetuneDiverged):
            self.say(diverged_line(event))
        elif isinstance(event, CandidateDone) and is_troubled(event):
            self.say(self._candidate_line(event))

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """Stop drawing; the last picture stays above the final table."""
        self._live.stop()
        super().finish(networks, report, text, more)

    def picture(self) -> RenderableType:
        """What is on the screen now."""
        state = self.state
        parts: list[RenderableType] = [self._headline()]
        if state.picks or state.epochs:
            parts.append(self._picks())
        rows = min(_PLOT_ROWS, self._console.height - _ROWS_BESIDE_PLOT)
        columns = min(_PLOT_COLUMNS, self._console.width - 12)
        if state.candidates and rows >= 5 and columns >= 20:
            parts.append(self._plot(columns, rows))
        return Group(*parts)

    def _headline(self) -> RenderableType:
        state = self.state
        what, done, total = state.headline()
        left = state.seconds_left()
        since = time.monotonic() - self._heard
        eta = "" if left is None else f"{duration(max(0.0, left - since))} left"
        line = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(1, total), completed=done, width=24)
        line.add_row(what, bar, eta, Text(state.troubles(), "red"))
        below = [Text(text, "dim") for text in (state.by_node(), state.archive) if text]
        return Group(line, *below)

    def _picks(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for role, pick in self.state.picks.items():
            cells = [
                _mark(role),
                Text(role),
                Text(f"error {percent(pick.train_error)}"),
                Text(f"FLOPs -{percent(self.state.saved(pick), 1)}"),
            ]
            for roles, epoch in self.state.epochs.items():
                if role in roles:
                    cells += _tuned(epoch)
            table.add_row(*cells)
        for roles, epoch in self.state.epochs.items():
            if not self.state.picks.keys() & {*roles}:  # a target or a candidate that is none of the three
                table.add_row(_mark(roles[0]), Text("+".join(roles)), Text(""), Text(""), *_tuned(epoch))
        return table

    def _plot(self, columns: int, rows: int) -> RenderableType:
        plain = not self._console.encoding.lower().startswith("utf")
        drawn = Text(scatter(self.state.points(plain=plain), width=columns, height=rows, plain=plain))
        for mark, colour in _COLOURS.items():
            drawn.highlight_regex(rf"(?<![\w.]){mark}", colour)
        return Group(Text("error on the sample", "dim"), drawn)


def _mark(role: str) -> Text:
    return Text(MARKS[role], _COLOURS[MARKS[role]]) if role in MARKS else Text("")


def _tuned(epoch: EpochDone) -> list[Text]:
    """How far a fine-tuning is, as cells of the table."""
    test = epoch.report.test_error
    shown = "" if test is None else f"test error {percent(test)}"
    return [Text(f"epoch {epoch.report.epoch}/{epoch.epochs}"), Text(shown)]
