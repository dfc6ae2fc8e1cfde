"""Where a search stands, by its events: picks, time left, growth of the archive: all displays use it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from deeppruning.amounts import percent
from deeppruning.errors import RunError
from deeppruning.roles import MARKS, ROLES
from deeppruning.runs import Candidate, RunFolder, Status
from deeppruning.runs.archive_replay import CostRange, cost_range, replay, sources
from deeppruning.searching.events import (
    CandidateDone,
    EpochDone,
    Event,
    FinetuneDiverged,
    GenerationDone,
    LayersScanned,
    Remark,
    Stage,
    Started,
)

_STAGES = {  # by name
    "data": "reading the data",
    "graph": "analysing the network",
    "widths": "measuring which widths are fast here",
    "original": "measuring the original",
    "orders": "ordering filters",
    "reference": "recording what the original computes",
    "scan": "scanning layers",
    "networks": "preparing and testing the selected networks",
}


@dataclass(frozen=True)
class Point:
    """A network in a scatter plot: its FLOPs, its error (0..1) and the character that shows it."""

    flops: int
    error: float
    mark: str


@dataclass
class SearchState:
    """What has happened so far; `update` takes in one event."""

    workers: int = 1
    judged_by: str = "error"  # or "drift", of the outputs where there are no labels
    stage: Stage | None = None  # of the preparations, while it lasts
    started: Started | None = None
    scanned: LayersScanned | None = None
    generation: int = 1
    done: int = 0
    seconds: list[float] = field(default_factory=list)  # of each candidate evaluated by this process
    diverged: int = 0
    failed: int = 0
    retried: int = 0
    picks: dict[str, Candidate] = field(default_factory=dict)
    epochs: dict[tuple[str, ...], EpochDone] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)  # candidates evaluated by each machine
    within: CostRange | None = None  # of the archive, if the search keeps one
    archive: str = ""  # the archive in a line

    def update(self, event: Event) -> None:
        """Take in an event."""
        if not isinstance(event, Remark):
            self.stage = event if isinstance(event, Stage) else None
        if isinstance(event, Started):
            self.started = event
            self.within = range_of(event.run)
        elif isinstance(event, LayersScanned):
            self.scanned = event
        elif isinstance(event, CandidateDone):
            self._count_candidate(event)
        elif isinstance(event, GenerationDone):
            self.generation = min(event.generation + 1, event.generations or event.generation + 1)
            self.picks = {role: event.picks[role] for role in ROLES}
            if self.within is not None:
                self.archive = growth_line(self.within, self.candidates, event.original_flops)
        elif isinstance(event, EpochDone):
            # A new dict: a display's own thread may be iterating over the old one.
            self.epochs = {**self.epochs, event.roles: event}
        elif isinstance(event, FinetuneDiverged):
            self.epochs = {roles: epoch for roles, epoch in self.epochs.items() if roles != event.roles}

    def _count_candidate(self, event: CandidateDone) -> None:
        self.done += 1
        self.candidates.append(event.candidate)
        if not event.fresh:
            return
        evaluation = event.candidate.evaluated
        self.seconds.append(evaluation.seconds)
        node = node_of(evaluation.worker)
        if node:
            self.nodes = {**self.nodes, node: self.nodes.get(node, 0) + 1}
        self.diverged += evaluation.status is Status.DIVERGED
        self.failed += evaluation.status is Status.FAILED
        self.retried += event.attempts > 1

    @property
    def total(self) -> int:
        """Candidates of the whole run; 0 if that is unknown."""
        return (self.started.evaluations or 0) if self.started is not None else 0

    def headline(self) -> tuple[str, int, int]:
        """What is being done, how much of it is done, and out of how much; out of 0 if that is unknown."""
        if self.stage is not None:
            done, total = self.stage.done, self.stage.of
            return stage_title(self.stage) + (f"  {done}/{total}" if total else ""), done, total
        tuning = list(self.epochs.values())
        if tuning:
            done, total = sum(each.report.epoch for each in tuning), sum(each.epochs for each in tuning)
            return f"fine-tuning  epoch {done}/{total}", done, total
        if self.done == self.total and self.total:
            return "search done", self.done, self.total
        if self.scanned is not None and not self.done:
            done, total = self.scanned.done, self.scanned.of
            return f"scanning layers  {done}/{total}", done, total
        if not self.total:
            return f"generation {self.generation}  candidate {self.done}", self.done, 0
        generations = self.started.generations if self.started is not None else 0
        what = f"generation {self.generation}/{generations}  candidate {self.done}/{self.total}"
        return what, self.done, self.total

    def seconds_left(self) -> float | None:
        """Until the end of the search, or of the fine-tuning once it has begun; None while unknown."""
        if self.epochs:
            latest = [done for done in self.epochs.values() if done.report.epoch]
            if not latest:
                return None
            each = sum(done.report.seconds for done in latest) / len(latest)
            rounds = sum(done.epochs - done.report.epoch for done in self.epochs.values())
            return each * rounds / min(self.workers, len(self.epochs))
        if not self.seconds or not self.total:
            return None
        # The median: a worker's first candidate takes longer, and would be multiplied by all that are left.
        return median(self.seconds) * (self.total - self.done) / self.workers

    def points(self, *, plain: bool = False) -> list[Point]:
        """The points of a scatter plot: older candidates, those of this generation, the picks."""
        old, new = (".", "o") if plain else ("·", "•")
        latest = self.candidates[-1].generation if self.candidates else 0
        marked = [(each, new if each.generation == latest else old) for each in self.candidates]
        marked += [(pick, MARKS[role]) for role, pick in self.picks.items()]
        return [
            Point(each.flops, each.train_error, mark) for each, mark in marked if each.train_error is not None
        ]

    def saved(self, candidate: Candidate) -> float:
        """The share of the original's FLOPs that a candidate saves."""
        assert self.started is not None
        return 1.0 - candidate.flops / self.started.original_flops

    def picks_line(self) -> str:
        """The three picks in one line: error and FLOPs saved of each."""
        return " | ".join(
            f"{role} {percent(pick.train_error)} -{percent(self.saved(pick), 1)} FLOPs"
            for role, pick in self.picks.items()
        )

    def by_node(self) -> str:
        """How many candidates each machine has evaluated; empty if there is only one."""
        counts = ", ".join(f"{node} {count}" for node, count in sorted(self.nodes.items()))
        return f"nodes: {counts}" if len(self.nodes) > 1 else ""

    def troubles(self) -> str:
        """How many candidates diverged, failed or were retried; empty if none."""
        counts = {"diverged": self.diverged, "failed": self.failed, "retried": self.retried}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def stage_title(stage: Stage) -> str:
    """What is being done, in words; for an unknown stage its name."""
    return _STAGES.get(stage.name, stage.name)


def node_of(worker: str) -> str:
    """The machine of a worker, which is named machine:process; empty if unknown."""
    return worker.rpartition(":")[0]


def range_of(run: str) -> CostRange | None:
    """The cost range of a run's archive; None if it keeps none, or its options cannot be read."""
    # A display must not stop a run.
    with suppress(RunError), RunFolder.open(run, read_only=True) as folder:
        return cost_range(folder.config.get("search", {}))
    return None


def growth_line(within: CostRange, candidates: Sequence[Candidate], original_flops: int) -> str:
    """Cost ranges with a candidate, those that the last generation improved, and error and FLOPs at three."""
    by_id = {candidate.id: candidate for candidate in candidates}
    history = replay(within, candidates)
    *earlier, last = history.fronts.values()
    new = len(set(last) - set(earlier[-1] if earlier else ()))
    # Those nearest to a quarter, half and three quarters of the ranges: the same places each time.
    bins = history.archive.bins
    places = [history.archive.near(bins * quarter // 4, 0)[:1] for quarter in (1, 2, 3)]
    ids = dict.fromkeys(id_ for place in places for id_ in place)
    spots = [
        f"{percent(by_id[id_].train_error, 1)} at -{percent(1 - by_id[id_].flops / original_flops, 0)} FLOPs"
        for id_ in ids
    ]
    return f"archive {len(last)}/{within.bins} cost ranges (+{new}){': ' if spots else ''}{', '.join(spots)}"


def origins_line(run: RunFolder) -> str:
    """How many candidates of each origin entered the archive; empty for a run without one."""
    within = cost_range(run.config.get("search", {}))
    if within is None:
        return ""
    evaluated = [each for each in run.history.candidates() if each.evaluation is not None]
    counts = sources(evaluated, replay(within, evaluated))
    return ", ".join(f"{origin.name} {origin.entered} of {origin.tried}" for origin in counts)
