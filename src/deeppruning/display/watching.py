"""Who looks on while a call from Python works: somebody at a terminal or a notebook, or nobody."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from deeppruning.display.notebook import NotebookProgress, in_notebook
from deeppruning.display.progress import SearchProgress, make_progress
from deeppruning.pruning.events import Event
from deeppruning.pruning.job import Job


def display_for(progress: bool | None) -> SearchProgress | None:
    """What shows the progress: asked for, refused, or (None) shown where a person looks on.

    A pipe, a log file and a test get lines if they ask for them, and nothing otherwise.
    """
    if progress is False:
        return None
    if in_notebook():
        return NotebookProgress()
    if progress is None and not (sys.stdout is not None and sys.stdout.isatty()):
        return None
    return make_progress(quiet=False, as_json=False)


@contextmanager
def watched(job: Job, progress: bool | None) -> Iterator[Job]:
    """The job with its progress shown, beside what its own observer does; for its backend's `with` block."""
    display = display_for(progress)
    if display is None:
        yield job
        return
    display.state.workers = job.backend.room()

    def tell(event: Event) -> None:
        display(event)
        job.observer(event)

    with display:
        yield replace(job, observer=tell)
