"""Whether and how a call from Python shows its progress: on a terminal, in a notebook, or not at all."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from deeppruning.comparison.events import MethodDone, RivalEvent, RivalObserver
from deeppruning.comparison.words import method_line
from deeppruning.display.lines import diverged_line
from deeppruning.display.notebook import NotebookProgress, in_notebook
from deeppruning.display.progress import SearchProgress, make_progress
from deeppruning.jobs.job import Job
from deeppruning.searching.events import Event, FinetuneDiverged, Remark


def is_shown(progress: bool | None) -> bool:
    """Whether progress is shown: as asked, or with None on a terminal and in a notebook.

    A pipe, a log file and a test get lines only if they ask for them.
    """
    if progress is not None:
        return progress
    return in_notebook() or (sys.stdout is not None and sys.stdout.isatty())


def display_for(progress: bool | None) -> SearchProgress | None:
    """The display of a search's progress, if it is shown."""
    if not is_shown(progress):
        return None
    return NotebookProgress() if in_notebook() else make_progress(quiet=False, as_json=False)


def rivals_watched(observer: RivalObserver, progress: bool | None) -> RivalObserver:
    """The observer of a comparison, which also prints a line per finished method if progress is shown."""
    if not is_shown(progress):
        return observer

    def tell(event: RivalEvent) -> None:
        if isinstance(event, MethodDone):
            print(method_line(event), flush=True)
        elif isinstance(event, FinetuneDiverged):
            print(diverged_line(event), flush=True)
        observer(event)

    return tell


@contextmanager
def watched(job: Job, progress: bool | None) -> Iterator[Job]:
    """The job with its progress shown, in addition to its own observer; for its backend's `with` block."""
    display = display_for(progress)
    if display is None and isinstance(job.observer, SearchProgress):  # the command line shows it itself
        yield job
        return
    if display is not None:
        display.state.workers = job.backend.room()

    def tell(event: Event) -> None:
        if display is not None:
            display(event)
        if isinstance(event, Remark) and (display is None or event.about == "original"):
            warnings.warn(event.text.removeprefix("WARNING: "), stacklevel=2)
        job.observer(event)

    with display or nullcontext():
        yield replace(job, observer=tell)
