"""How training shows its progress: a bar on a terminal, a line per epoch elsewhere, nothing when quiet."""

from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from deeppruning.amounts import percent
from deeppruning.training.checkpoint import BatchReport, EpochReport


def epoch_line(report: EpochReport, epochs: int) -> str:
    """One epoch as one line.

    >>> epoch_line(EpochReport(1, 0.5, 0.2, 0.1, 0.1, 250.0, 4.0), 30)
    'epoch  1/30  train error 20.00 %  test error 10.00 %  loss 0.5000  lr 0.1  250 images/s  4.0 s'
    """
    errors = f"train error {percent(report.train_error)}"
    if report.test_error is not None:
        errors += f"  test error {percent(report.test_error)}"
    return (
        f"epoch {report.epoch:>{len(str(epochs))}}/{epochs}  {errors}  loss {report.train_loss:.4f}  "
        f"lr {report.lr:.3g}  {report.images_per_second:.0f} images/s  {report.seconds:.1f} s"
    )


class TrainingProgress:
    """A context manager; `fit` takes its methods as on_batch and on_epoch."""

    def __init__(self, epochs: int, done: int, *, quiet: bool) -> None:
        self._epochs = epochs
        self._quiet = quiet
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._total_known = False
        self._done = done
        console = Console()
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(), console=console,
            )  # fmt: skip
            self._task = self._bar.add_task("starting", total=None, state="")

    def __enter__(self) -> "TrainingProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def on_terminal(self) -> bool:
        """Whether there is a bar, which moves with every batch."""
        return self._bar is not None

    def on_batch(self, report: BatchReport) -> None:
        """Move the bar."""
        if self._bar is None:
            return
        if not self._total_known:
            self._total_known = True
            total = self._epochs * report.batches
            self._bar.reset(self._task, total=total, completed=self._done * report.batches)
        self._bar.update(
            self._task,
            completed=(report.epoch - 1) * report.batches + report.batch,
            description=f"epoch {report.epoch}/{self._epochs}",
            state=f"error {percent(report.train_error)}  lr {report.lr:.3g}  "
            f"{report.images_per_second:.0f} images/s",
        )

    def on_epoch(self, report: EpochReport) -> None:
        """Print the epoch's line."""
        if self._bar is not None:
            self._bar.console.print(epoch_line(report, self._epochs), highlight=False)
        elif not self._quiet:
            click.echo(epoch_line(report, self._epochs))
