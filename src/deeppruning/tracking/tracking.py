"""The observer that turns the events of a run into what trackers record."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.jobs.network_table import NetworkRow, NetworkTable, read_rows
from deeppruning.runs import RunFolder, facts
from deeppruning.runs.facts import TrackerNotes
from deeppruning.runs.folder import CONFIG
from deeppruning.searching.events import (
    CandidateDone,
    EpochDone,
    Event,
    FinetuneDiverged,
    GenerationDone,
    Remark,
    Started,
)
from deeppruning.system.files import without_folders
from deeppruning.system.versions import computed_by
from deeppruning.tracking.figures import SearchFigures
from deeppruning.tracking.tracker import EPOCH, GENERATION, TRACKERS, TrackedRun, Tracker, Value
from deeppruning.version import __version__

Track = str | Tracker | Sequence[str | Tracker] | None
_EPOCH_METRICS = ("train_loss", "train_error", "test_error", "lr")


class Tracking:
    """The trackers of one call: open from `follow` until `finish` or, if the run fails or stops, `close`.

    A context manager, and an observer of events. What a record has already is not written again: a run that
    is resumed tells of its first generations once more.
    """

    def __init__(self, track: "Track | Tracking" = None) -> None:
        given: list[Any] = (
            list(track) if isinstance(track, Sequence) and not isinstance(track, str) else [track]
        )
        self._trackers = [_tracker_named(each) for each in given if track is not None]
        names = [tracker.name for tracker in self._trackers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"the tracker {twice[0]} is given twice; a run has one record of each kind")
        for tracker in self._trackers:
            tracker.check()
        self._open: dict[str, Tracker] = {}
        self._notes: dict[str, TrackerNotes] = {}
        self._keep: Callable[[dict[str, TrackerNotes]], object] = lambda notes: None
        self._figures = SearchFigures(0)
        self.say: Callable[[Remark], object] = lambda remark: None

    @classmethod
    def of(cls, track: "Track | Tracking") -> "Tracking":
        """The trackers that a call names; a Tracking is used as it is, and finished by whoever made it."""
        return track if isinstance(track, Tracking) else cls(track)

    @classmethod
    def of_run(cls, folder: RunFolder, track: "Track | Tracking") -> "Tracking":
        """The trackers to continue a run with: those it has, unless others, or none, are given."""
        if track is not None:
            return cls.of(track)
        return cls([name for name, notes in recorded(folder).items() if not notes["finished"]])

    def follow(self, folder: RunFolder) -> None:
        """Open the records of a run; what is needed to continue them is kept in its history."""
        notes = recorded(folder)
        self._keep = lambda notes: folder.history.set_fact(facts.TRACKERS, notes)
        path = folder.path
        self._open_trackers(path.resolve().name, path, _flat_options(without_folders(folder.config)), notes)

    def follow_search(self, options: Mapping[str, Any]) -> None:
        """Open the records of a search that keeps nothing on disk."""
        self._open_trackers("search", None, _flat_options({"search": options}), {})

    def _open_trackers(
        self, name: str, folder: Path | None, options: dict[str, Value], notes: Mapping[str, TrackerNotes]
    ) -> None:
        """Open every tracker for the run and write its options."""
        environment = _flat_options({"environment": {**computed_by(), "deeppruning": __version__}})
        self._notes = dict(notes)
        for tracker in self._trackers:
            own = notes.get(tracker.name)
            try:
                kept = dict(tracker.open(TrackedRun(name, folder, own["kept"] if own else {})))
            except DeepPruningError:
                raise
            except Exception as error:
                raise RunError(f"the tracker {tracker.name} cannot be opened: {error}") from error
            self._open[tracker.name] = tracker
            self._notes[tracker.name] = own or TrackerNotes(
                kept=kept, generation=0, epochs={}, finished=False
            )
            if own is None:
                self._write_to_tracker(tracker, "options", {**options, **environment})
        if self._trackers:
            self._keep(self._notes)

    def __call__(self, event: Event) -> None:
        """Record an event."""
        if not self._open:
            return
        match event:
            case Started():
                self._figures = SearchFigures(event.original_flops)
            case CandidateDone():
                self._figures.add(event.candidate)
            case GenerationDone():
                self._write_generation(event)
            case EpochDone():
                self._write_epoch(event)
            case FinetuneDiverged():  # it starts again, so its epochs are counted again
                for notes in self._notes.values():
                    notes["epochs"].pop(_name_of_training(event), None)

    def _write_generation(self, event: GenerationDone) -> None:
        """The figures of a generation to all trackers that do not have them."""
        late = [
            tracker
            for tracker in self._open.values()
            if self._notes[tracker.name]["generation"] < event.generation
        ]
        if not late:
            return
        metrics, plot = self._figures.metrics(list(event.picks.items())), self._figures.plot()
        for tracker in late:
            self._write_to_tracker(tracker, "metrics", _finite_metrics(metrics), event.generation, GENERATION)
            if plot is not None:
                self._write_to_tracker(tracker, "image", "front", plot, event.generation)
            self._notes[tracker.name]["generation"] = event.generation
        self._keep(self._notes)

    def _write_epoch(self, event: EpochDone) -> None:
        """The figures of an epoch to all trackers that do not have them."""
        report, training = event.report, _name_of_training(event)
        values = {name: getattr(report, name) for name in _EPOCH_METRICS}
        metrics = {f"finetune/{training}/{name}": value for name, value in values.items()}
        for tracker in list(self._open.values()):
            epochs = self._notes[tracker.name]["epochs"]
            if epochs.get(training, -1) < report.epoch:
                self._write_to_tracker(tracker, "metrics", _finite_metrics(metrics), report.epoch, EPOCH)
                epochs[training] = report.epoch
        self._keep(self._notes)

    def finish(self, run_dir: str | Path | None = None) -> None:
        """Record the final figures and files of a run, and close the records."""
        if not self._open:
            return
        if run_dir is not None:
            with RunFolder.open(run_dir, read_only=True) as run:
                rows, targets = read_rows(run), facts.target_lines(run.history.facts())
            text = "\n\n".join([NetworkTable(rows).markdown(), *targets])
            files = _files_worth_keeping(Path(run_dir), rows)
            for tracker in list(self._open.values()):
                self._write_to_tracker(tracker, "summary", _summary_metrics(rows), text)
                self._write_to_tracker(tracker, "files", files)
        done = list(self._open)
        self.close("finished")
        if run_dir is not None:
            with RunFolder.open(run_dir) as run:
                for name in done:
                    self._notes[name]["finished"] = True
                run.history.set_fact(facts.TRACKERS, self._notes)

    def close(self, status: str) -> None:
        """Close the records that are open."""
        for tracker in list(self._open.values()):
            self._write_to_tracker(tracker, "close", status)
        self._open = {}

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.close("failed" if isinstance(error, Exception) else "stopped")

    def _write_to_tracker(self, tracker: Tracker, method: str, *values: Any) -> None:
        """Call a tracker; if that fails, the run goes on without it."""
        if tracker.name not in self._open:
            return
        try:
            getattr(tracker, method)(*values)
        except Exception as error:
            del self._open[tracker.name]
            text = f"the tracker {tracker.name} failed, and the run goes on without it: {error}"
            self.say(Remark("tracker", text))


def recorded(folder: RunFolder) -> dict[str, TrackerNotes]:
    """What the history of a run says about its trackers."""
    return folder.history.get_fact(facts.TRACKERS) or {}


def _tracker_named(given: str | Tracker) -> Tracker:
    if isinstance(given, Tracker):
        return given
    if not isinstance(given, str):
        raise InputError(f"track takes names of trackers ({', '.join(TRACKERS)}) or trackers, got {given!r}")
    made: Tracker = TRACKERS.find(given).make()
    return made


def _name_of_training(event: EpochDone | FinetuneDiverged) -> str:
    """The name of a fine-tuning: the first role of its candidate."""
    return event.roles[0] if event.roles else f"candidate-{event.id}"


def _flat_options(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Options by "table.name"; lists as text.

    >>> _flat_options({"search": {"seed": 0, "exclude": ["stem"]}})
    {'search.seed': 0, 'search.exclude': 'stem'}
    """
    flat: dict[str, Value] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            flat |= _flat_options(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            flat[f"{prefix}{name}"] = ", ".join(map(str, value))
        elif value is not None:
            flat[f"{prefix}{name}"] = value if isinstance(value, (int, float)) else str(value)
    return flat


def _finite_metrics(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def _summary_metrics(rows: Sequence[NetworkRow]) -> dict[str, float]:
    names = ("test_error", "flops", "flops_pruned", "params", "latency_seconds")
    saved = [row for row in rows if not row.failure]
    return _finite_metrics({f"{row.network}/{name}": getattr(row, name) for row in saved for name in names})


def _files_worth_keeping(run_dir: Path, rows: Sequence[NetworkRow]) -> dict[str, Path]:
    """The files of a run that are worth keeping elsewhere, by their names in its folder."""
    names = [CONFIG, "report.html", *(f"{row.network}.safetensors" for row in rows)]
    plots = sorted(path.relative_to(run_dir).as_posix() for path in run_dir.glob("plots/*.png"))
    return {name: run_dir / name for name in (*names, *plots) if (run_dir / name).is_file()}
