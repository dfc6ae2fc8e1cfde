"""Where a search stands, learnt from its events: what every display of its progress is made from."""

from dataclasses import dataclass, field
from statistics import median

from deeppruning.amounts import percent
from deeppruning.display.archive import growth_line, range_of
from deeppruning.display.scatter import Point
from deeppruning.roles import MARKS, ROLES
from deeppruning.runs.archive_replay import CostRange
from deeppruning.runs.records import Candidate, Status
from deeppruning.searching.events import (
    CandidateDone,
    EpochDone,
    Event,
    FinetuneDiverged,
    GenerationDone,
    LayersScanned,
    Started,
)


@dataclass
class SearchState:
    """What has been seen so far; `hear` takes in one event."""

    workers: int = 1
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
    within: CostRange | None = None  # of the archive, where the search keeps one
    archive: str = ""  # how it stands, in a line

    def hear(self, event: Event) -> None:
        """Take in what has happened."""
        if isinstance(event, Started):
            self.started = event
            self.within = range_of(event.run)
        elif isinstance(event, LayersScanned):
            self.scanned = event
        elif isinstance(event, CandidateDone):
            self._hear_candidate(event)
        elif isinstance(event, GenerationDone):
            self.generation = min(event.generation + 1, event.generations)
            self.picks = {role: event.picks[role] for role in ROLES}
            if self.within is not None:
                self.archive = growth_line(self.within, self.candidates, event.original_flops)
        elif isinstance(event, EpochDone):
            # A new table, not a new entry: a display's own thread may be walking through the old one.
            self.epochs = {**self.epochs, event.roles: event}
        elif isinstance(event, FinetuneDiverged):
            self.epochs = {roles: epoch for roles, epoch in self.epochs.items() if roles != event.roles}

    def _hear_candidate(self, event: CandidateDone) -> None:
        self.done += 1
        self.candidates.append(event.candidate)
        if not event.fresh:
            return
        found = event.candidate.known
        self.seconds.append(found.seconds)
        node = node_of(found.worker)
        if node:
            self.nodes = {**self.nodes, node: self.nodes.get(node, 0) + 1}
        self.diverged += found.status is Status.DIVERGED
        self.failed += found.status is Status.FAILED
        self.retried += event.attempts > 1

    @property
    def total(self) -> int:
        """Candidates of the whole run."""
        return self.started.evaluations if self.started is not None else 0

    def headline(self) -> tuple[str, int, int]:
        """What is being done, how much of it is done, and out of how much."""
        tuning = list(self.epochs.values())
        if tuning:
            done, total = sum(one.report.epoch for one in tuning), sum(one.epochs for one in tuning)
            return f"fine-tuning  epoch {done}/{total}", done, total
        if self.done == self.total and self.total:
            return "search done", self.done, self.total
        if self.scanned is not None and not self.done:
            done, total = self.scanned.done, self.scanned.of
            return f"looking at each layer  {done}/{total}", done, total
        generations = self.started.generations if self.started is not None else 0
        what = f"generation {self.generation}/{generations}  candidate {self.done}/{self.total}"
        return what, self.done, self.total

    def seconds_left(self) -> float | None:
        """Until the search is over, or the fine-tuning once it has begun; None while there is no telling."""
        if self.epochs:
            latest = [done for done in self.epochs.values() if done.report.epoch]
            if not latest:
                return None
            each = sum(done.report.seconds for done in latest) / len(latest)
            rounds = sum(done.epochs - done.report.epoch for done in self.epochs.values())
            return each * rounds / min(self.workers, len(self.epochs))
        if not self.seconds:
            return None
        # The median: a worker's first candidate takes longer, and would be multiplied by all that are left.
        return median(self.seconds) * (self.total - self.done) / self.workers

    def points(self, *, plain: bool = False) -> list[Point]:
        """The population for a scatter plot: older candidates, this generation's, the picks."""
        old, new = (".", "o") if plain else ("·", "•")
        latest = self.candidates[-1].generation if self.candidates else 0
        marked = [(seen, new if seen.generation == latest else old) for seen in self.candidates]
        marked += [(pick, MARKS[role]) for role, pick in self.picks.items()]
        return [
            Point(one.flops, one.train_error, mark) for one, mark in marked if one.train_error is not None
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
        """How many candidates each machine has evaluated, as a phrase; empty where there is only one."""
        counts = ", ".join(f"{node} {count}" for node, count in sorted(self.nodes.items()))
        return f"nodes: {counts}" if len(self.nodes) > 1 else ""

    def troubles(self) -> str:
        """Candidates that did not go as they should, as a phrase; empty where all did."""
        counts = {"diverged": self.diverged, "failed": self.failed, "retried": self.retried}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def node_of(worker: str) -> str:
    """The machine of a worker, which is called machine:process; empty where it is not known."""
    return worker.rpartition(":")[0]
