"""One candidate: from a genome to its objectives, the same wherever and whenever it is evaluated."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from torch import nn

from deeppruning.backends.base import Outcome
from deeppruning.config import SearchConfig
from deeppruning.errors import Diverged
from deeppruning.genome import Genome, candidate_seed
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import as_call, batch_size
from deeppruning.latency import LatencyPlan
from deeppruning.objectives import Objective, as_objective
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.refitting.memory import THOROUGH
from deeppruning.refitting.reference import probe_original
from deeppruning.runs.records import Evaluation, Status, now
from deeppruning.searching.events import Remark
from deeppruning.searching.task import Judgement, Task
from deeppruning.system.allocator import release_freed_memory
from deeppruning.system.device import device_or_cpu

Value = TypeVar("Value")
SEARCH_REFERENCE, FINAL_REFERENCE = "reference", "final reference"
WORTH_SAYING = 0.1  # of the memory that a refit may take


@dataclass(frozen=True)
class Context:
    """What every evaluation needs; sent to each worker once."""

    graph: ChannelGraph
    task: Task
    objective: Objective | str | Callable[[nn.Module], float]  # a name only if workers know it, too
    example_input: Any
    seed: int
    device: str = "cpu"  # on which latency is measured
    plan: LatencyPlan | None = None  # if a latency is the objective or limited
    memory: float = SearchConfig.memory  # in GB, of one refit
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # of this process

    def once(self, name: str, compute: Callable[[], Value]) -> Value:
        """The value that the first call in this process computed under this name."""
        if name not in self._cache:
            self._cache[name] = compute()
        return cast(Value, self._cache[name])

    def forget(self, name: str) -> None:
        """Drop the value under a name, if there is one."""
        self._cache.pop(name, None)

    def reference(self, *, final: bool = False) -> Reference | None:
        """The original's answers to the inputs that networks are refitted on; None where nothing is refitted.

        The task alone decides that: by whether its `refit_inputs` are None.
        """

        def compute() -> Reference | None:
            inputs = self.task.refit_inputs(final=final)
            if inputs is None:
                return None
            if final:
                self.forget(SEARCH_REFERENCE)
            release_freed_memory()
            memory = int(self.memory * 1e9)
            return Reference.of(self.graph, inputs, device=self.device, memory=memory, thorough=final)

        return self.once(FINAL_REFERENCE if final else SEARCH_REFERENCE, compute)

    def memory_remark(self) -> Remark | None:
        """What the refit of a network that is handed out takes, if that is much, or that it is too much."""
        inputs = self.task.refit_inputs(final=True)
        if inputs is None:
            return None
        count = batch_size(as_call(inputs))
        shown = probe_original(self.graph, inputs, str(device_or_cpu(self.device)))
        limit = int(self.memory * 1e9)
        room, needed = shown.room(limit, count, THOROUGH), shown.memory(count, THOROUGH)
        beside = "each worker may take as much, and the inputs themselves come on top"
        if room < count:
            return Remark(
                "sample",
                f"a refit uses {room:,} of the {count:,} inputs: more have no room in the {self.memory:g} GB "
                f"that it may take (--memory); {beside}",
            )
        if needed < WORTH_SAYING * limit:
            return None
        return Remark(
            "memory",
            f"a refit on {count:,} inputs takes up to {needed / 1e9:.1f} GB, of the {self.memory:g} that it "
            f"may take (--memory); {beside}",
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}


def refit_if_asked(context: Context, genome: Genome, thin: nn.Module, *, final: bool = False) -> None:
    """Refit a network just cut, in place, if the task has inputs for it; the original itself stays as it is.

    `final` is for the start of fine-tuning.
    """
    reference = None if genome.all() else context.reference(final=final)
    if reference is not None:
        if final:
            release_freed_memory()
        refit_in_place(reference, context.graph, genome, thin, compare=final)


def evaluate_candidate(context: Context, genome: Genome) -> Evaluation:
    """Cut from the original weights, refit or train briefly, measure.

    Nothing is inherited from other candidates, and the seed follows from the run's seed and the genome: the
    result does not depend on the worker or the order of evaluations.
    """
    thin = context.graph.prune(genome)
    objective = as_objective(context.objective)
    cost = objective.cost(context.graph, genome, thin, context.example_input, context.device)
    if not math.isfinite(cost):
        reason = f"the second objective is {cost}, not a finite number"
        return _evaluation_of(context, genome, status=Status.FAILED, detail=reason)
    try:
        refit_if_asked(context, genome, thin)
        judgement = context.task.judge(thin, candidate_seed(context.seed, genome))
    except Diverged as diverged:
        return _evaluation_of(context, genome, status=Status.DIVERGED, detail=str(diverged))
    for name, figure in (("error", judgement.error), ("score", judgement.score)):
        if figure is not None and not math.isfinite(figure):
            reason = f"the {name} is {figure}, not a finite number"
            return _evaluation_of(context, genome, status=Status.DIVERGED, detail=reason)
    return _evaluation_of(context, genome, judgement, cost)


def settle(context: Context, genome: Genome, outcome: Outcome[Any, Evaluation]) -> Evaluation:
    """The evaluation that a worker returned, or that of a failure; with its time and worker."""
    evaluation = outcome.value
    if evaluation is None:
        reason = outcome.failure or "its worker gave no reason"
        evaluation = _evaluation_of(context, genome, status=Status.FAILED, detail=reason)
    return replace(evaluation, seconds=outcome.seconds, worker=outcome.worker, finished_at=now())


def _evaluation_of(
    context: Context,
    genome: Genome,
    judgement: Judgement | None = None,
    cost: float | None = None,
    *,
    status: Status = Status.OK,
    detail: str = "",
) -> Evaluation:
    """The evaluation of a genome, with its costs by the graph."""
    return Evaluation(
        genome=genome,
        error=None if judgement is None else judgement.error,
        score=None if judgement is None else judgement.score,
        cost=cost,
        flops=context.graph.flops(genome),
        params=context.graph.params(genome),
        status=status,
        detail=detail,
    )
