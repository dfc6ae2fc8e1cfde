"""What every method is given, and what it hands back."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppruning.backends.base import Session
from deeppruning.comparison.contexts import Contexts
from deeppruning.config import SearchConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.genome import Genome, Population
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.rounds import Round, kind_of_round
from deeppruning.runs.history import History
from deeppruning.runs.records import Evaluation, Status
from deeppruning.searching.candidate import Context, evaluate_candidate, refit_if_asked, settle
from deeppruning.searching.importance import Evidence
from deeppruning.searching.loop import refuse_hopeless
from deeppruning.searching.task import Classification
from deeppruning.system.device import device_or_cpu

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Work:
    """A function of a context, and its argument, for a worker to call."""

    function: Callable[[Context, Any], Any]
    argument: Any
    refits: bool = False  # in the context that refits


Workers = Session[Work, Any]


def call(contexts: Contexts, work: Work) -> Any:
    """What workers run: any function of a context and an argument."""
    return work.function(contexts.refitting if work.refits else contexts.plain, work.argument)


def kind_of_call(work: Work) -> str:
    """What decides how long a call takes; rounds of fine-tuning are of two kinds themselves."""
    told = kind_of_round(work.argument) if isinstance(work.argument, Round) else ""
    return f"{work.function.__name__} {'refit' if work.refits else told}"


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
    contexts: Contexts
    search: SearchConfig  # evaluations and mutation of the methods that search
    workers: Workers
    history: History  # what this method has evaluated, here or before it was stopped
    clock: "Clock"
    refits: bool = False  # candidates are judged after a refit, whatever the comparison's own evaluation is

    @property
    def context(self) -> Context:
        """What candidates are evaluated in."""
        return self.contexts.refitting if self.refits else self.contexts.plain

    def by_refit(self) -> "Problem":
        """The same problem, its candidates judged after a refit."""
        return replace(self, refits=True)

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
        return str(device_or_cpu(self.task.device))

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
            work = ((key, Work(function, item, self.refits)) for key, item in enumerate(items))
            for outcome in self.workers.map(work):
                if outcome.failure is not None:
                    raise RunError(f"{function.__name__} failed in {outcome.worker}:\n{outcome.failure}")
                found[outcome.key] = cast(Value, outcome.value)
                self.clock.worked(outcome.seconds)
        return [found[key] for key in sorted(found)]

    def refitted(self, genomes: Iterable[Genome]) -> list[Network]:
        """Networks of these genomes with weights from a refit on the whole sample."""
        return self.by_refit().map(refit_network, genomes)

    def evaluate(self, genomes: Population) -> NDArray[np.float64]:
        """(genomes, 2): error and FLOPs, as the evolution strategy has them; kept as they arrive.

        A genome that diverged or failed has neither: both are nan. Should all come to nothing, that is an
        error, and those that failed are not kept.
        """
        return np.array(
            [
                (row.error, row.flops) if row.status is Status.OK else (np.nan, np.nan)
                for row in self.judge(genomes)
            ]
        )

    def judge(self, genomes: Population) -> list[Evaluation]:
        """What `evaluate` is about, in full: the score that a search may select on is in it as well."""
        distinct = {genome.tobytes(): genome for genome in genomes}
        known = {key: self.history.evaluation(genome) for key, genome in distinct.items()}
        rows = {key: row for key, row in known.items() if row is not None}
        unknown = {key: genome for key, genome in distinct.items() if key not in rows}
        with self.clock.waiting():
            for outcome in self.workers.map(
                (key, Work(evaluate_candidate, genome, self.refits)) for key, genome in unknown.items()
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
        return [rows[genome.tobytes()] for genome in genomes]


def refit_network(context: Context, genome: Genome) -> Network:
    """Cut and refit on the whole sample; a cut whose layers give nothing finite has failed."""
    thin = context.graph.prune(genome)
    try:
        refit_if_asked(context, genome, thin, final=True)
    except (Diverged, InputError) as error:
        return Network(genome, failure=str(error))
    return Network(genome, {name: tensor.cpu() for name, tensor in thin.state_dict().items()})


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
    kind: str = "others"  # where the report shows it: a key of reporting.plots.KIND_COLORS
    needs: str | None = None  # a module that is not installed with the package
    least_sample: int = 1  # images that it cannot do without
    judges_by_refit: bool = False  # whether it asks `Problem.by_refit` for what candidates come to
    refittable: bool = False  # whether there is to be a method of its genomes with weights from a refit

    @abstractmethod
    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network for every target, in their order, of about the FLOPs asked for."""
