"""What a call from Python shows: progress in a terminal or a notebook, events for an observer, or nothing."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from deeppruning.backends import Backend
from deeppruning.comparison.results import ComparisonEvent, ComparisonObserver
from deeppruning.display.lines import comparison_line
from deeppruning.display.notebook import NotebookProgress, in_notebook
from deeppruning.display.picture import make_progress
from deeppruning.display.progress import SearchProgress
from deeppruning.errors import DeepPruningError
from deeppruning.reporting import write_report
from deeppruning.searching.events import Event, Observer, Remark, ignore
from deeppruning.tracking import Tracking


def is_shown(progress: bool | None) -> bool:
    """Whether progress is shown: if `progress` is None, in a terminal and in a notebook.

    A pipe, a log file and a test get lines only if they ask for them.
    """
    if progress is not None:
        return progress
    return in_notebook() or (sys.stdout is not None and sys.stdout.isatty())


def display_for(progress: bool | None) -> SearchProgress | None:
    """What shows the progress of a search, if that is shown."""
    if not is_shown(progress):
        return None
    return NotebookProgress() if in_notebook() else make_progress(quiet=False, as_json=False)


class Watch:
    """The observer of one call: it shows the progress, warns, and passes events on to the user's observer."""

    def __init__(
        self,
        observer: Observer = ignore,
        progress: bool | None = None,
        *,
        report: bool = True,
        tracking: Tracking | None = None,
    ) -> None:
        self._observer, self._report = observer, report
        self.tracking = tracking or Tracking()
        self.tracking.say = self
        self._display = display_for(progress)

    def __call__(self, event: Event) -> None:
        """Receive an event."""
        if self._display is not None:
            self._display(event)
        if isinstance(event, Remark) and self._warns_of(event):
            warnings.warn(event.text.removeprefix("WARNING: "), stacklevel=2)
        self._observer(event)
        self.tracking(event)

    def _warns_of(self, remark: Remark) -> bool:
        """Whether a remark is also a warning: one that nobody sees otherwise, unless all is well."""
        if self._display is not None:
            return remark.about == "original"
        # The command line's own progress shows remarks itself.
        return remark.about != "memory" and not isinstance(self._observer, SearchProgress)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress of what is done inside."""
        with self._display or nullcontext(), self.tracking:
            yield

    def work_on(self, backend: Backend) -> None:
        """Learn how many workers share the work, from a backend that is open."""
        if self._display is not None:
            self._display.state.workers = backend.room()

    def conclude(self, run_dir: str | Path, track: object) -> None:
        """Write the page of a run, and what is left for the trackers that the call itself has opened."""
        self.write_report(run_dir)
        if track is not self.tracking:
            self.tracking.finish(run_dir)

    def write_report(self, run_dir: str | Path) -> None:
        """Write the page of a run, unless the user does not want it; a failure must not lose the result."""
        try:
            if self._report:
                write_report(run_dir)
        except (DeepPruningError, OSError) as error:
            warnings.warn(f"no report was written: {error}", stacklevel=3)


def watch_comparison(observer: ComparisonObserver, progress: bool | None) -> ComparisonObserver:
    """The observer of a comparison that also writes a line per method, if progress is shown."""
    shown = is_shown(progress)

    def tell(event: ComparisonEvent) -> None:
        if isinstance(event, Remark) and observer is ignore:
            warnings.warn(event.text, stacklevel=3)
        if shown and (line := comparison_line(event)):
            print(line, flush=True)
        observer(event)

    return tell
