"""One candidate: from a genome to its objectives, the same wherever and whenever it is evaluated."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from torch import nn

from deeppruning.backends.base import Outcome
from deeppruning.errors import Diverged
from deeppruning.genome import Genome, candidate_seed
from deeppruning.graph import ChannelGraph
from deeppruning.latency import LatencyPlan
from deeppruning.objectives import Objective, as_objective
from deeppruning.refitting import Reference, refit_in_place
from deeppruning.runs.records import Evaluation, Status, now
from deeppruning.searching.task import Judgement, Task

Worked = TypeVar("Worked")
FINAL_REFERENCE = "final reference"


@dataclass(frozen=True)
class Context:
    """What every evaluation needs; sent to each worker once."""

    graph: ChannelGraph
    task: Task
    objective: Objective | str | Callable[[nn.Module], float]  # a name only where workers know it, too
    example_input: Any
    seed: int
    device: str = "cpu"  # what latency is measured on
    plan: LatencyPlan | None = None  # where a latency is the objective or limited
    refits: bool = False  # candidates are refitted where the task has inputs for it
    _found: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # by this process

    def once(self, name: str, find: Callable[[], Worked]) -> Worked:
        """What is found under this name by the first call in this process; it does not travel."""
        if name not in self._found:
            self._found[name] = find()
        return cast(Worked, self._found[name])

    def reference(self, *, final: bool = False) -> Reference | None:
        """What the original answers to the inputs that networks are refitted on; each process has its own."""
        if not self.refits:
            return None

        def find() -> Reference | None:
            inputs = self.task.refit_inputs(final=final)
            return None if inputs is None else Reference.of(self.graph, inputs, device=self.device)

        return self.once(FINAL_REFERENCE if final else "reference", find)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": {}}


def refit_if_asked(context: Context, genome: Genome, thin: nn.Module, *, final: bool = False) -> None:
    """Refit a network just cut, in place, where the context says so; the original itself stays as it is.

    `final` is for the start of fine-tuning.
    """
    reference = None if genome.all() else context.reference(final=final)
    if reference is not None:
        refit_in_place(reference, context.graph, genome, thin, compare=final)


def evaluate_candidate(context: Context, genome: Genome) -> Evaluation:
    """Cut from the original weights, refit or train briefly, measure.

    Nothing is inherited from other candidates, and the seed follows from the run's seed and the
    genome alone: which worker does it, in what order, makes no difference.
    """
    thin = context.graph.prune(genome)
    cost = cost_of(context, thin, genome)
    if not math.isfinite(cost):
        reason = f"the second objective is {cost}, not a finite number"
        return _came_to(context, genome, status=Status.FAILED, detail=reason)
    try:
        refit_if_asked(context, genome, thin)
        found = context.task.judge(thin, candidate_seed(context.seed, genome))
    except Diverged as diverged:
        return _came_to(context, genome, status=Status.DIVERGED, detail=str(diverged))
    for name, figure in (("error", found.error), ("score", found.score)):
        if figure is not None and not math.isfinite(figure):
            reason = f"the {name} is {figure}, not a finite number"
            return _came_to(context, genome, status=Status.DIVERGED, detail=reason)
    return _came_to(context, genome, found, cost)


def settle(context: Context, genome: Genome, outcome: Outcome[Any, Evaluation]) -> Evaluation:
    """What is kept of a candidate: what its worker found, or that none did; where, when, and how long."""
    found = outcome.value
    if found is None:
        reason = outcome.failure or "its worker gave no reason"
        found = _came_to(context, genome, status=Status.FAILED, detail=reason)
    return replace(found, seconds=outcome.seconds, worker=outcome.worker, finished_at=now())


def _came_to(
    context: Context,
    genome: Genome,
    found: Judgement | None = None,
    cost: float | None = None,
    *,
    status: Status = Status.OK,
    detail: str = "",
) -> Evaluation:
    return Evaluation(
        genome=genome,
        error=None if found is None else found.error,
        score=None if found is None else found.score,
        cost=cost,
        flops=context.graph.flops(genome),
        params=context.graph.params(genome),
        status=status,
        detail=detail,
    )


def cost_of(context: Context, thin: nn.Module, genome: Genome) -> float:
    """The second objective of a thin network."""
    objective = as_objective(context.objective)
    return objective.cost(context.graph, genome, thin, context.example_input, context.device)
