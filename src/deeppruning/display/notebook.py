"""The progress of a search in a notebook: one output that is redrawn, never a column of lines."""

import html
import importlib
import sys
import time
from typing import Any

from deeppruning.amounts import duration, percent
from deeppruning.display.lines import line_of
from deeppruning.display.progress import SearchProgress
from deeppruning.searching.events import (
    CandidateDone,
    CandidateRefused,
    Event,
    FinetuneDiverged,
    FinetunePlanned,
    Remark,
    Stage,
    Started,
    TargetSettled,
)

SECONDS = 0.5  # between two pictures: a browser that draws every candidate is busy with little else


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not imported for it."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None


class NotebookProgress(SearchProgress):
    """A bar, the time left and the picks so far, in one output of the current cell."""

    def __init__(self) -> None:
        super().__init__()
        self._display = importlib.import_module("IPython.display").display
        self._handle: Any = None
        self._drawn = 0.0
        self._remarks: list[str] = []

    def __exit__(self, *exc_info: Any) -> None:
        if self._handle is not None:
            self._redraw_cell()  # what happened since the last picture

    def show(self, event: Event) -> None:
        """Redraw, unless that was just done."""
        said = Started | Remark | FinetuneDiverged | FinetunePlanned | TargetSettled | CandidateRefused
        if isinstance(event, said):
            self._remarks.append(line_of(event, self.state))
        frequent = isinstance(event, CandidateDone) or (isinstance(event, Stage) and event.done > 0)
        if not frequent or time.monotonic() - self._drawn > SECONDS:
            self._redraw_cell()

    def _redraw_cell(self) -> None:
        self._drawn = time.monotonic()
        bundle = {"text/plain": self.state.headline()[0], "text/html": self.markup()}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def markup(self) -> str:
        """A bar, the time left, troubles, and a row for each pick."""
        what, done, total = self.state.headline()
        left = self.state.seconds_left()
        words = [what, f"{duration(left)} left" if left else "", self.state.troubles(), self.state.by_node()]
        line = "&ensp;".join(html.escape(word) for word in words if word)
        value = f'value="{done}" max="{total}" ' if total else ""  # without a value it moves to and fro
        bar = f'<progress {value}aria-label="progress"></progress>'
        below = "".join(
            f"<div>{html.escape(text)}</div>" for text in (*self._remarks, self.state.archive) if text
        )
        return f"<div>{bar} {line}</div>{below}{self._table_of_picks()}"

    def _table_of_picks(self) -> str:
        if not self.state.picks:
            return ""
        head = "<tr><th></th><th>error in the search</th><th>FLOPs saved</th></tr>"
        rows = "".join(
            f"<tr><th>{html.escape(role)}</th><td>{percent(pick.train_error)}</td>"
            f"<td>{percent(self.state.saved(pick), 1)}</td></tr>"
            for role, pick in self.state.picks.items()
        )
        return f"<table>{head}{rows}</table>"
