"""What every method is given, and what it hands back."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.backends.base import Session
from deeppruning.config import SearchConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import RunError
from deeppruning.genome import Genome, Population
from deeppruning.graph import ChannelGraph
from deeppruning.importance import Evidence
from deeppruning.pruning.candidate import Context, evaluate_candidate, settle
from deeppruning.pruning.finetuning import Round, kind_of_round
from deeppruning.pruning.runner import refuse_hopeless
from deeppruning.pruning.task import Classification
from deeppruning.runs.history import History
from deeppruning.runs.records import Status
from deeppruning.system.device import this_or_processor

Argument = TypeVar("Argument")
Value = TypeVar("Value")
Workers = Session[tuple[Callable[[Context, Any], Any], Any], Any]


def call(context: Context, item: tuple[Callable[[Context, Any], Any], Any]) -> Any:
    """What workers run: any function of the context and an argument."""
    function, argument = item
    return function(context, argument)


def kind_of_call(item: tuple[Callable[[Context, Any], Any], Any]) -> str:
    """What decides how long a call takes; rounds of fine-tuning are of two kinds themselves."""
    function, argument = item
    return f"{function.__name__} {kind_of_round(argument) if isinstance(argument, Round) else ''}"


@dataclass(frozen=True)
class Target:
    """A network to be asked for: heavy, knee and light of a run, or a share of the original's FLOPs."""

    name: str
    flops: int


@dataclass(frozen=True, eq=False)
class Network:
    """A thin network by its genome; weights are given where they are not those of the original, cut.

    A network that the method could not train has a `failure` instead: it has no errors.
    """

    genome: Genome
    weights: dict[str, Tensor] | None = None
    failure: str = ""


@dataclass(frozen=True, eq=False)
class Problem:
    """A network to be pruned, its data, workers, and the seed of whatever is random."""

    model: nn.Module
    context: Context  # its task is a Classification that holds the whole training set
    search: SearchConfig  # evaluations and mutation of the methods that search
    workers: Workers
    history: History  # what this method has evaluated, here or before it was stopped
    clock: "Clock"

    @property
    def graph(self) -> ChannelGraph:
        """Which filters go together."""
        return self.context.graph

    @property
    def task(self) -> Classification:
        """How networks are judged and trained."""
        assert isinstance(self.context.task, Classification)
        return self.context.task

    @property
    def sample(self) -> ImageSet:
        """The class-balanced images that candidates are judged on."""
        return self.task.sample

    @property
    def seed(self) -> int:
        """The seed of this repetition."""
        return self.context.seed

    @property
    def device(self) -> str:
        """Where this process computes; workers may have a device that it lacks."""
        return str(this_or_processor(self.task.device))

    def generator(self) -> np.random.Generator:
        """Random numbers that follow from the seed alone."""
        return np.random.default_rng(self.seed)

    @cached_property
    def evidence(self) -> Evidence:
        """What criteria may look at: the network and the sample."""
        return Evidence(self.graph, self.model, self.sample, self.device, self.seed)

    def map(self, function: Callable[[Context, Argument], Value], items: Iterable[Argument]) -> list[Value]:
        """The function's values, in the order of the items, worked out side by side."""
        found: dict[int, Value] = {}
        with self.clock.waiting():
            for outcome in self.workers.map((key, (function, item)) for key, item in enumerate(items)):
                if outcome.failure is not None:
                    raise RunError(f"{function.__name__} failed in {outcome.worker}:\n{outcome.failure}")
                found[outcome.key] = cast(Value, outcome.value)
                self.clock.worked(outcome.seconds)
        return [found[key] for key in sorted(found)]

    def evaluate(self, genomes: Population) -> NDArray[np.float64]:
        """(genomes, 2): error and FLOPs, as the evolution strategy has them; kept as they arrive.

        A genome that diverged or failed has neither: both are nan. Should all come to nothing, that is an
        error, and those that failed are not kept.
        """
        distinct = {genome.tobytes(): genome for genome in genomes}
        known = {key: self.history.evaluation(genome) for key, genome in distinct.items()}
        rows = {key: row for key, row in known.items() if row is not None}
        unknown = {key: genome for key, genome in distinct.items() if key not in rows}
        with self.clock.waiting():
            for outcome in self.workers.map(
                (key, (evaluate_candidate, genome)) for key, genome in unknown.items()
            ):
                rows[outcome.key] = settle(self.context, unknown[outcome.key], outcome)
                if rows[outcome.key].status is not Status.FAILED:
                    self.history.record_evaluation(rows[outcome.key])
        if unknown:
            refuse_hopeless("a method's search", list(rows.values()), needed=False)
        for key, row in rows.items():
            if key in unknown and row.status is Status.FAILED:
                self.history.record_evaluation(row)
            self.clock.worked(row.seconds, of=key)
        found = [rows[genome.tobytes()] for genome in genomes]
        return np.array(
            [(row.error, row.flops) if row.status is Status.OK else (np.nan, np.nan) for row in found]
        )


class Clock:
    """The time a method takes: its own, and that of each worker in place of waiting for them."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._waited = self._worked = 0.0
        self._counted: set[bytes] = set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for workers."""
        started = time.perf_counter()
        yield
        self._waited += time.perf_counter() - started

    def worked(self, seconds: float, of: bytes | None = None) -> None:
        """Count the time of a worker, that of a candidate once, be it evaluated now or before a stop."""
        if of is None or of not in self._counted:
            self._worked += seconds
        if of is not None:
            self._counted.add(of)

    def seconds(self) -> float:
        """What has been spent so far."""
        return time.perf_counter() - self._started - self._waited + self._worked


class Method(ABC):
    """A way to prune. The docstring of each says what the source does and where a choice had to be made."""

    name: str
    kind: str = "others"  # where the report shows it: one of reporting.comparison.KINDS, or others
    needs: str | None = None  # a module that is not installed with the package

    @abstractmethod
    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network for every target, in their order, of about the FLOPs asked for."""
