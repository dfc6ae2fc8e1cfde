"""Who looks on while a call from Python works: somebody at a terminal or a notebook, or nobody."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from deeppruning.comparison.results import MethodDone, RivalEvent, RivalObserver, method_line
from deeppruning.display.notebook import NotebookProgress, in_notebook
from deeppruning.display.progress import SearchProgress, diverged_line, make_progress
from deeppruning.jobs.job import Job
from deeppruning.searching.events import Event, FinetuneDiverged, Remark


def is_shown(progress: bool | None) -> bool:
    """Whether progress is shown: asked for, refused, or (None) shown where a person looks on.

    A pipe, a log file and a test get lines if they ask for them, and nothing otherwise.
    """
    if progress is not None:
        return progress
    return in_notebook() or (sys.stdout is not None and sys.stdout.isatty())


def display_for(progress: bool | None) -> SearchProgress | None:
    """What shows the progress of a search, if that is shown."""
    if not is_shown(progress):
        return None
    return NotebookProgress() if in_notebook() else make_progress(quiet=False, as_json=False)


def rivals_watched(observer: RivalObserver, progress: bool | None) -> RivalObserver:
    """The observer of a comparison that also writes a line when a method is done, if progress is shown."""
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
    """The job with its progress shown, beside what its own observer does; for its backend's `with` block."""
    display = display_for(progress)
    if display is None and isinstance(job.observer, SearchProgress):  # the command line says it all itself
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
