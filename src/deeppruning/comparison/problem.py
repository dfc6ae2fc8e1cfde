"""What a method of a comparison is, the problem it is given, the networks it returns; methods by name."""

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

from deeppruning.backends import Outcome, Session
from deeppruning.config import SearchConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import Diverged, InputError, RunError, unknown
from deeppruning.genome import Genome, Population
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.rounds import Round, kind_of_round
from deeppruning.registry import Registry
from deeppruning.runs import Evaluation, History
from deeppruning.searching.candidate import Context, evaluate_candidate, refit_if_asked
from deeppruning.searching.importance import Evidence
from deeppruning.searching.loop import evaluate_genomes
from deeppruning.searching.task import Classification
from deeppruning.system.device import device_or_cpu

REFIT = "refit"  # the evaluation of methods that vary widths
BRIEF = "finetune"  # the evaluation of methods that flip bits, if that of the comparison refits
# Asked by default: they show what a refit, a guided search and the paper's search are worth.
USUAL = ("l1", "l1+refit", "l1-sensitivity+refit", "guided", "random-widths", "es-plus")
Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Target:
    """A network to ask for: heavy, knee or light of a run, or a share of the original's FLOPs."""

    name: str
    flops: int


@dataclass(frozen=True, eq=False)
class Network:
    """A thin network by its genome; without weights, it has those of the original, cut.

    A network that the method could not train has a `failure` instead: it has no errors.
    """

    genome: Genome
    weights: dict[str, Tensor] | None = None
    failure: str = ""


@dataclass(frozen=True, eq=False)
class Contexts:
    """One context in two variants; the second is made from the first when it is needed, once per process.

    Fine-tuning uses the plain one, which refits nothing: refitted networks bring their weights.
    """

    plain: Context  # its task is a Classification that holds the whole training set

    @classmethod
    def of(cls, context: Context, task: Classification) -> "Contexts":
        """The contexts for a task; if its evaluation refits, the plain one trains candidates briefly."""
        if task.refits:
            task = replace(task, search=replace(task.search, evaluation=BRIEF), evaluation=None)
        return cls(replace(context, task=task, _cache={}))

    @cached_property
    def refitting(self) -> Context:
        """Refits candidates and evaluates them on the rest of the sample; refits picks on all of it."""
        task = self.plain.task
        assert isinstance(task, Classification)
        search = replace(task.search, evaluation=REFIT)
        # Nothing is fine-tuned here, so the options of fine-tuning do not matter.
        own = replace(task, search=search, evaluation=None, train=None, tuning=None)
        return replace(self.plain, task=own, _cache={})

    def with_seed(self, seed: int) -> "Contexts":
        """The same contexts with another seed."""
        return Contexts(replace(self.plain, seed=seed))

    def __getstate__(self) -> dict[str, Any]:
        return {"plain": self.plain}


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
    """What decides the time of a call; there are two kinds of rounds of fine-tuning."""
    round_kind = kind_of_round(work.argument) if isinstance(work.argument, Round) else ""
    return f"{work.function.__name__} {'refit' if work.refits else round_kind}"


class Clock:
    """The time a method takes: its own, and the time of the workers instead of waiting for them."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._waited = self._worked = 0.0
        self._counted: set[bytes | None] = set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for workers."""
        started = time.perf_counter()
        yield
        self._waited += time.perf_counter() - started

    def worked(self, seconds: float, genome: Genome | None = None) -> None:
        """Add the time of a worker; that of a candidate is added once, also if it was evaluated earlier."""
        key = None if genome is None else genome.tobytes()
        if key is None or key not in self._counted:
            self._worked += seconds
            self._counted.add(key)

    def seconds(self) -> float:
        """The time so far."""
        return time.perf_counter() - self._started - self._waited + self._worked


@dataclass(frozen=True, eq=False)
class Problem:
    """A network to prune, its data, workers, and the seed of everything random."""

    model: nn.Module
    contexts: Contexts
    search: SearchConfig  # evaluations and mutation of the methods that search
    workers: Workers
    history: History  # of this method's evaluations, also those before it was stopped
    clock: Clock
    refits: bool = False  # candidates are evaluated after a refit, whatever the evaluation of the comparison

    @property
    def context(self) -> Context:
        """The context in which candidates are evaluated."""
        return self.contexts.refitting if self.refits else self.contexts.plain

    def by_refit(self) -> "Problem":
        """The same problem with candidates evaluated after a refit."""
        return replace(self, refits=True)

    @property
    def graph(self) -> ChannelGraph:
        """The channel graph of the network."""
        return self.context.graph

    @property
    def task(self) -> Classification:
        """How networks are evaluated and trained."""
        assert isinstance(self.context.task, Classification)
        return self.context.task

    @property
    def sample(self) -> ImageSet:
        """The class-balanced images that candidates are evaluated on."""
        return self.task.sample

    @property
    def seed(self) -> int:
        """The seed of this repetition."""
        return self.context.seed

    def generator(self) -> np.random.Generator:
        """Random numbers that follow from the seed alone."""
        return np.random.default_rng(self.seed)

    @cached_property
    def evidence(self) -> Evidence:
        """What criteria may look at: the network and the sample, on a device that this process has."""
        device = str(device_or_cpu(self.task.device))
        return Evidence(self.graph, self.model, self.sample, device, self.seed)

    def map(self, function: Callable[[Context, Argument], Value], items: Iterable[Argument]) -> list[Value]:
        """The values of a function for all items, in their order, computed by the workers."""
        values: dict[int, Value] = {}
        with self.clock.waiting():
            work = ((key, Work(function, item, self.refits)) for key, item in enumerate(items))
            for outcome in self.workers.map(work):
                if outcome.failure is not None:
                    raise RunError(f"{function.__name__} failed in {outcome.worker}:\n{outcome.failure}")
                values[outcome.key] = cast(Value, outcome.value)
                self.clock.worked(outcome.seconds)
        return [values[key] for key in sorted(values)]

    def refitted(self, genomes: Iterable[Genome]) -> list[Network]:
        """Networks of these genomes with weights from a refit on the whole sample."""
        return self.by_refit().map(refit_network, genomes)

    def evaluate(self, genomes: Population) -> NDArray[np.float64]:
        """Error and FLOPs (genomes, 2), both nan for a genome that diverged or failed."""
        return np.array([evaluation.objectives for evaluation in self.judge(genomes)])

    def judge(self, genomes: Population) -> list[Evaluation]:
        """Full evaluations, with the score that a search selects on; recorded as they arrive.

        If all genomes fail, an error is raised.
        """

        def submit(items: Iterable[tuple[int, Genome]]) -> Iterator[Outcome[int, Evaluation]]:
            return self.workers.map(
                (key, Work(evaluate_candidate, genome, self.refits)) for key, genome in items
            )

        with self.clock.waiting():
            evaluations = evaluate_genomes(
                self.context, self.history, submit, genomes, name="a method's search"
            )
        for evaluation in evaluations:
            self.clock.worked(evaluation.seconds, evaluation.genome)
        return evaluations


def refit_network(context: Context, genome: Genome) -> Network:
    """Cut and refit on the whole sample; a network with layers that return nothing finite has failed."""
    thin = context.graph.prune(genome)
    try:
        refit_if_asked(context, genome, thin, final=True)
    except (Diverged, InputError) as error:
        return Network(genome, failure=str(error))
    return Network(genome, {name: tensor.cpu() for name, tensor in thin.state_dict().items()})


class Method(ABC):
    """A pruning method. Its docstring says what the source does and where a choice had to be made."""

    name: str
    kind: str = "others"  # where the report shows it: a key of reporting.plots.KIND_COLORS
    least_sample: int = 1  # images that it needs
    judges_by_refit: bool = False  # whether it evaluates candidates with `Problem.by_refit`
    refittable: bool = False  # whether a second method, with +refit, refits its networks

    @abstractmethod
    def propose(self, problem: Problem, targets: Sequence[Target]) -> list[Network]:
        """A network for every target, in their order, with about the FLOPs of the target."""


METHODS: Registry[Method] = Registry("method", "deeppruning.comparison.methods")
register_method = METHODS.register


def choose_methods(names: str | Sequence[str]) -> list[Method]:
    """The methods of these names (a list, or one text with commas) in the registry's order; "all" is all."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for name in listed:
        if name != "all" and name not in METHODS:
            raise unknown("method", name, ("all", *METHODS))
    if not listed:
        raise InputError(f"no method is named; choose among all, {', '.join(METHODS)}")
    return [method for name, method in METHODS.items() if name in listed or "all" in listed]
