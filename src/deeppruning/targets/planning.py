"""The plan of a latency that a search goes by: made on this machine, kept with the run, used to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deeppruning.errors import DAMAGE, RunError
from deeppruning.latency import Conditions, LatencyPlan
from deeppruning.latency.plan import plan_latency
from deeppruning.objectives import Latency, as_objective
from deeppruning.runs import facts
from deeppruning.runs.history import History

if TYPE_CHECKING:
    from deeppruning.jobs.job import Job


def planned(job: Job) -> Job:
    """The job with a plan, where its search needs one."""
    if not _needs_plan(job) or job.context.plan is not None:
        return job
    conditions = Conditions.of(job.search, job.context.device)
    return with_plan(job, plan_latency(job.context.graph, job.context.example_input, conditions))


def with_plan(job: Job, plan: LatencyPlan) -> Job:
    """The job with this plan."""
    given = job.context.objective
    objective = Latency(plan) if isinstance(as_objective(given), Latency) else given
    return replace(job, context=replace(job.context, plan=plan, objective=objective))


def keep_plan(job: Job, history: History) -> Job:
    """The job with the plan that its history has; one that is made only now is kept there.

    On another machine, or another day, a plan comes out otherwise: a run goes on with its own.
    """
    if not _needs_plan(job):
        return job
    table = history.get_fact(facts.LATENCY_PLAN)
    if table is not None:
        try:
            return with_plan(job, LatencyPlan.from_table(table))
        except DAMAGE as error:
            raise RunError(
                f"{history.path} holds no whole plan of the latency ({error}); start a new run"
            ) from error
    if any(candidate.evaluation is not None for candidate in history.candidates()):
        raise RunError(
            f"{history.path}: its search measured the latency of each candidate, as older versions did; "
            "what is planned now is not comparable, start a new run"
        )
    ready = planned(job)
    assert ready.context.plan is not None
    history.set_fact(facts.LATENCY_PLAN, ready.context.plan.to_table())
    return ready


def _needs_plan(job: Job) -> bool:
    return job.target.latency is not None or isinstance(as_objective(job.context.objective), Latency)
