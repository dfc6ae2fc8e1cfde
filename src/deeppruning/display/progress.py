"""How a search shows its progress: a live picture on a terminal, else lines, JSON for machines, or nothing.

With --json every line on the output is one object with the key `event`; errors are shares (0..1):
`training`, `trained` (only without --weights), `started`, `remark`, `scanned`, `candidate`, `generation`,
`epoch`, `diverged`, `refused`, `solution`, `target`, `finished`. A candidate that diverged or failed has null
as error and cost. The keys are the fields of the events in deeppruning.searching.events, with those of a
candidate, solution or epoch report; `finished` has `networks`, the rows of the final table, and `report`.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from deeppruning.display.lines import as_record, line_of
from deeppruning.display.state import SearchState
from deeppruning.searching.events import Event, TargetSettled


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

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """The end: the networks, for machines and as a text for people, with more lines for those who ask."""
        click.echo(text)


class PlainProgress(SearchProgress):
    """A line for each candidate, generation and epoch."""

    def say(self, text: str) -> None:
        click.echo(text)

    def show(self, event: Event) -> None:
        """Print the event's line, if it has one; the table at the end says what became of targets."""
        line = line_of(event, self.state)
        if line and not isinstance(event, TargetSettled):
            self.say(line)

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """Print everything; lines are not wrapped, since commands among them are copied."""
        click.echo("\n".join([text, *more]))


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
        click.echo(text, err=True)

    def tell(self, kind: str, **values: Any) -> None:
        click.echo(json.dumps({"event": kind, **values}), file=self._output)

    def show(self, event: Event) -> None:
        kind, values = as_record(event)
        self.tell(kind, **values)

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        self.tell("finished", networks=networks, report=report)


def make_progress(*, quiet: bool, as_json: bool) -> SearchProgress:
    """The display for these flags and this output."""
    if as_json:
        return JsonProgress()
    if quiet:
        return SearchProgress()
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        from deeppruning.display.picture import LiveProgress

        return LiveProgress(console)
    # A pipe or a log gets the lines as they come.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return PlainProgress()
