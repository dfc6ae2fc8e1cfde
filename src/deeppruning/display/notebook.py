"""The progress of a search in a notebook: one output that is drawn anew, never a column of lines."""

import html
import importlib
import sys
import time
from types import TracebackType
from typing import Any

from deeppruning.amounts import duration, percent
from deeppruning.display.progress import (
    SearchProgress,
    diverged_line,
    refused_line,
    started_line,
    target_line,
)
from deeppruning.searching.events import (
    CandidateDone,
    CandidateRefused,
    Event,
    FinetuneDiverged,
    Remark,
    Started,
    TargetSettled,
)

SECONDS = 0.5  # between two pictures: a browser that draws every candidate is busy with little else


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is asked only where it is loaded already."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None


class NotebookProgress(SearchProgress):
    """A bar, the time left and the picks so far, in one output of the cell that is running."""

    def __init__(self) -> None:
        super().__init__()
        self._display = importlib.import_module("IPython.display").display
        self._handle: Any = None
        self._drawn = 0.0
        self._remarks: list[str] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._draw()  # what happened since the last picture

    def show(self, event: Event) -> None:
        """Draw anew, if there was no picture just now."""
        if isinstance(event, Started):
            self._remarks.append(started_line(event))
        elif isinstance(event, Remark):
            self._remarks.append(event.text)
        elif isinstance(event, FinetuneDiverged):
            self._remarks.append(diverged_line(event))
        elif isinstance(event, TargetSettled):
            self._remarks.append(target_line(event))
        elif isinstance(event, CandidateRefused):
            self._remarks.append(refused_line(event))
        if not isinstance(event, CandidateDone) or time.monotonic() - self._drawn > SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        bundle = {"text/plain": self.text(), "text/html": self.markup()}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def text(self) -> str:
        """Where the search stands, for a notebook that is read as text."""
        return self.state.headline()[0]

    def markup(self) -> str:
        """Where the search stands: a bar, the time left, troubles, and a row for each pick."""
        what, done, total = self.state.headline()
        left = self.state.seconds_left()
        words = [what, f"{duration(left)} left" if left else "", self.state.troubles(), self.state.by_node()]
        line = "&ensp;".join(html.escape(word) for word in words if word)
        bar = f'<progress value="{done}" max="{max(1, total)}" aria-label="progress"></progress>'
        below = "".join(
            f"<div>{html.escape(text)}</div>" for text in (*self._remarks, self.state.archive) if text
        )
        return f"<div>{bar} {line}</div>{below}{self._picks()}"

    def _picks(self) -> str:
        rows = [
            (role, percent(pick.train_error), percent(self.state.saved(pick), 1))
            for role, pick in self.state.picks.items()
        ]
        if not rows:
            return ""
        head = "<tr><th></th><th>error in the search</th><th>FLOPs saved</th></tr>"
        cells = [[html.escape(text) for text in row] for row in rows]
        body = "".join(
            f"<tr><th>{role}</th><td>{error}</td><td>{saved}</td></tr>" for role, error, saved in cells
        )
        return f"<table>{head}{body}</table>"
