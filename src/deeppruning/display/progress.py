"""How a search shows itself: a live picture on a terminal, lines elsewhere, JSON for machines, or nothing.

With --json every line on the output is one object with the key `event`; errors are shares (0..1):
`training`, `trained` (only without --weights), `started`, `remark`, `scanned`, `candidate`, `generation`,
`epoch`, `diverged`, `solution`, `target`, `finished`. A candidate that diverged or failed has null for its
error and cost. The keys are the fields of the events in deeppruning.searching.events, those of a candidate, a
solution or an epoch report beside them; `finished` has `networks`, the rows of the final table, and `report`.
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import click
from rich.console import Console

from deeppruning.amounts import amount, duration, percent
from deeppruning.display.records import as_record
from deeppruning.display.state import SearchState, node_of
from deeppruning.runs.facts import told_refused, told_target
from deeppruning.runs.records import Status
from deeppruning.searching.events import (
    CandidateDone,
    CandidateRefused,
    EpochDone,
    Event,
    FinetuneDiverged,
    GenerationDone,
    LayersScanned,
    Remark,
    SolutionSaved,
    Started,
    TargetSettled,
)


class SearchProgress:
    """Shows nothing but the final table; the base of the others. Use as a context and as an observer."""

    def __init__(self) -> None:
        self.state = SearchState()

    def __enter__(self) -> "SearchProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Take in an event and show what is to be shown of it."""
        self.state.hear(event)
        self.show(event)

    def show(self, event: Event) -> None:
        """Show what has just happened; `state` knows it already."""

    def say(self, text: str) -> None:
        """A remark for people."""

    def tell(self, kind: str, **facts: Any) -> None:
        """An event for machines that is not the search's own."""

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """The end: the networks, for machines and as a text for people, who may want to know more."""
        click.echo(text)


class PlainProgress(SearchProgress):
    """A line a candidate, a generation and an epoch."""

    def say(self, text: str) -> None:
        """Print the remark."""
        click.echo(text)

    def show(self, event: Event) -> None:
        """Print the event's line, if it has one."""
        line = self._line(event)
        if line:
            self.say(line)

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """Print all of it, lines as long as they are: commands among them are copied."""
        click.echo("\n".join([text, *more]))

    def _line(self, event: Event) -> str:
        if isinstance(event, Started):
            return started_line(event)
        if isinstance(event, LayersScanned):
            return scanned_line(event)
        if isinstance(event, CandidateDone):
            return self._candidate_line(event) if event.fresh else ""
        if isinstance(event, GenerationDone):
            left = self.state.seconds_left()
            more = f" | {duration(left)} left" if left else ""
            nodes = self.state.by_node()
            more += f" | {nodes}" if nodes else ""
            more = f" | {self.state.archive}{more}" if self.state.archive else more
            line = f"generation {event.generation}/{event.generations} | {self.state.picks_line()}{more}"
            return line if self.state.seconds else ""
        if isinstance(event, EpochDone):
            return epoch_line(event)
        if isinstance(event, FinetuneDiverged):
            return diverged_line(event)
        if isinstance(event, CandidateRefused):
            return refused_line(event)
        if isinstance(event, TargetSettled):
            return ""  # the table at the end says it
        if isinstance(event, Remark):
            return event.text
        return saved_line(event)

    def _candidate_line(self, event: CandidateDone) -> str:
        found = event.candidate.known
        saved = self.state.saved(event.candidate)
        width = len(str(self.state.total))
        error = " " * 8 if found.error is None else f"{100 * found.error:6.2f} %"
        line = (
            f"candidate {self.state.done:>{width}}/{self.state.total}  error {error}  "
            f"FLOPs -{percent(saved, 1)}  {found.seconds:.1f} s"
        )
        where = f"  on {node_of(found.worker)}" if self.state.by_node() else ""
        return f"{line}{where}{_trouble(event)}"


class JsonProgress(SearchProgress):
    """One object a line on the output, remarks on the error stream."""

    def __init__(self) -> None:
        super().__init__()
        self._output = sys.stdout
        self._diverted = contextlib.redirect_stdout(sys.stderr)

    def __enter__(self) -> "JsonProgress":
        # Ray prints its own remarks on the output, in the middle of what a machine reads.
        self._diverted.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._diverted.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Print the remark where machines do not read."""
        click.echo(text, err=True)

    def tell(self, kind: str, **facts: Any) -> None:
        """Print the event."""
        click.echo(json.dumps({"event": kind, **facts}), file=self._output)

    def show(self, event: Event) -> None:
        """Print the event."""
        kind, facts = as_record(event)
        self.tell(kind, **facts)

    def finish(
        self, networks: list[dict[str, Any]], report: str | None, text: str, more: Sequence[str] = ()
    ) -> None:
        """Print the last event."""
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
    # Whoever reads a pipe or a log wants the lines as they come.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    return PlainProgress()


def started_line(event: Started) -> str:
    """What is about to be searched, and how good the original is on the search's sample."""
    original = event.original_error
    error = "" if original is None else f", error of the original on the sample {percent(original)}"
    begun = f"; {event.known} of {event.evaluations} candidates are known" if event.known else ""
    begun += f"; {event.widths}" if event.widths else ""
    return (
        f"searching: {event.genes} genes, {event.evaluations} candidates, "
        f"{amount(event.original_flops)} FLOPs, {event.original_params:,} parameters{error}{begun}"
    )


def scanned_line(event: LayersScanned) -> str:
    """How far the scan is, a line for each quarter of it."""
    quarters = 4 * event.done // event.of
    passed = quarters > 4 * (event.done - 1) // event.of
    return f"looking at each layer by itself: {event.done} of {event.of} cuts" if passed else ""


def epoch_line(event: EpochDone) -> str:
    """One epoch of fine-tuning as one line."""
    report = event.report
    train = "" if report.train_error is None else f"  train error {percent(report.train_error)}"
    test = "" if report.test_error is None else f"  test error {percent(report.test_error)}"
    before = "" if report.epoch else " (before training)"
    return (
        f"fine-tuning {'+'.join(event.roles)}  epoch {report.epoch}/{event.epochs}{before}{train}{test}  "
        f"{report.seconds:.1f} s"
    )


def saved_line(event: SolutionSaved) -> str:
    """Where a network is to be found."""
    untuned = " (as before fine-tuning, which did not help)" if event.solution.refitted else ""
    return f"saved {event.solution.role} in {event.solution.path}{untuned}"


def refused_line(event: CandidateRefused) -> str:
    """That a network is not handed out, and why."""
    return told_refused(event.id, event.reason)


def target_line(event: TargetSettled) -> str:
    """What became of the limits that were asked for."""
    return told_target(event.role, event.asked, event.note)


def diverged_line(event: FinetuneDiverged) -> str:
    """That the fine-tuning of a network diverged, and what becomes of it."""
    factor = event.lr_factor
    then = "it has failed" if factor is None else f"it starts again with {factor:g} of the learning rate"
    return f"fine-tuning {'+'.join(event.roles)} diverged ({event.reason}); {then}"


def is_troubled(event: CandidateDone) -> bool:
    """Whether a candidate evaluated just now did not go as it should."""
    return event.fresh and (event.candidate.status is not Status.OK or event.attempts > 1)


def _trouble(event: CandidateDone) -> str:
    tried = f"  ({event.attempts} attempts: workers died or hung)" if event.attempts > 1 else ""
    if event.candidate.status is Status.OK:
        return tried
    return f"{tried}  {event.candidate.status}: {event.candidate.reason}"
