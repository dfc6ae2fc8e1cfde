"""How a search shows its progress: a live picture on a terminal, else lines, JSON for machines, or nothing.

With --json every line on the output is one object with the key `event`; errors are shares (0..1):
`training`, `trained` (only without --weights), `stage`, `started`, `remark`, `scanned`, `candidate`,
`generation`, `epoch`, `diverged`, `refused`, `solution`, `target`, `finished`. A candidate that diverged or
failed has null as error and cost. The keys are the fields of the events in deeppruning.searching.events,
with those of a candidate, solution or epoch report; `finished` has `networks`, the rows of the final table,
and `report`.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from deeppruning.display.lines import as_record, line_of
from deeppruning.display.state import SearchState
from deeppruning.jobs.network_table import NetworkRow
from deeppruning.searching.events import Event, TargetSettled


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run: the networks as rows, and lines of text, with more for those who see the progress."""

    networks: Sequence[NetworkRow]
    report: Path | None
    lines: Sequence[str]
    more: Sequence[str] = ()


class SearchProgress:
    """Shows only the final table; the base of the others. A context manager, and an observer of events."""

    def __init__(self) -> None:
        self.state = SearchState()

    def __enter__(self) -> "SearchProgress":
        return self

    def __exit__(self, *exc_info: Any) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Take in an event and show it."""
        self.state.update(event)
        self.show(event)

    def show(self, event: Event) -> None:
        """Show what has just happened; `state` knows it already."""

    def say(self, text: str) -> None:
        """A remark for people."""

    def tell(self, kind: str, **values: Any) -> None:
        """An event for machines that is not one of the search's own."""

    def finish(self, outcome: RunOutcome) -> None:
        """Show how a run ended."""
        click.echo("\n".join(outcome.lines))


class PlainProgress(SearchProgress):
    """A line for each candidate, generation and epoch."""

    def say(self, text: str) -> None:
        """Print the remark."""
        click.echo(text)

    def show(self, event: Event) -> None:
        """Print the event's line, if it has one; the table at the end shows the outcome of targets."""
        line = line_of(event, self.state)
        if line and not isinstance(event, TargetSettled):
            self.say(line)

    def finish(self, outcome: RunOutcome) -> None:
        """Print everything; lines are not wrapped, since commands among them are copied."""
        click.echo("\n".join([*outcome.lines, *outcome.more]))


class JsonProgress(SearchProgress):
    """One JSON object per line on the output, remarks on the error stream."""

    def __init__(self) -> None:
        super().__init__()
        self._output = sys.stdout
        self._diverted = contextlib.redirect_stdout(sys.stderr)

    def __enter__(self) -> "JsonProgress":
        # Ray prints its own remarks on the output, in the middle of what a machine reads.
        self._diverted.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._diverted.__exit__(*exc_info)

    def say(self, text: str) -> None:
        """Write the remark to the error stream."""
        click.echo(text, err=True)

    def tell(self, kind: str, **values: Any) -> None:
        """Write the event as one JSON object."""
        click.echo(json.dumps({"event": kind, **values}), file=self._output)

    def show(self, event: Event) -> None:
        """Write an event of the search as one JSON object."""
        kind, values = as_record(event)
        self.tell(kind, **values)

    def finish(self, outcome: RunOutcome) -> None:
        """Write the networks of the run as one JSON object."""
        report = None if outcome.report is None else str(outcome.report)
        self.tell("finished", networks=[asdict(row) for row in outcome.networks], report=report)
