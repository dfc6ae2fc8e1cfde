"""How a candidate of a run becomes a solution: its fine-tuning by the job's options, its file and figures."""

from __future__ import annotations

import json
from dataclasses import replace

from deeppruning.jobs.finetuning import Finetuning, Tuned
from deeppruning.jobs.prepare import Job
from deeppruning.jobs.solution import Solution, save
from deeppruning.runs import Candidate, RunFolder, facts
from deeppruning.searching.events import SolutionSaved
from deeppruning.searching.task import Classification


def finetuning_of(job: Job, run: RunFolder, variant: str = "") -> Finetuning:
    """The fine-tuning of candidates of a run by the job's options."""
    # A user's own task is not trained by our options, so its seed is the run's.
    seed = job.finetune.seed if isinstance(job.task, Classification) else job.context.seed
    return Finetuning(run, replace(job.context, task=job.task), job.observer, seed, variant)


def finish(job: Job, run: RunFolder, role: str, candidate: Candidate, tuned: Tuned) -> Solution:
    """Save a fine-tuned candidate in the run folder, with its figures in the history."""
    model = job.context.graph.prune(candidate.genome)
    model.load_state_dict(tuned.weights)
    figures, description = _figures_of_solution(job, candidate), {"candidate": str(candidate.id)}
    figures["test_error"] = tuned.test_error
    if tuned.lr_factor != 1.0:
        figures["lr_factor"] = tuned.lr_factor
        description["lr_factor"] = json.dumps(tuned.lr_factor)
    if tuned.refitted:
        assert tuned.before is not None
        figures["not_helped"] = (tuned.before, tuned.after, job.task.validation_images)
        description["refitted"] = json.dumps(True)
    path = save(
        model,
        run.solution(role),
        job.context.graph,
        candidate.genome,
        role=role,
        error=candidate.train_error,
        test_error=tuned.test_error,
        description={**description, **job.description},
    )
    _forget_measurements(run, role, candidate.id)
    run.history.set_fact(facts.solution_fact(role), figures)
    solution = Solution.of_run(role, candidate, figures, path, model.eval())
    job.observer(SolutionSaved(solution))
    return solution


def keep_failed(job: Job, run: RunFolder, role: str, candidate: Candidate, reason: str) -> None:
    """Record a pick that could not be fine-tuned: its figures in the search, and why."""
    figures = _figures_of_solution(job, candidate)
    figures["failure"] = (reason.strip().splitlines() or [""])[-1]
    run.history.set_fact(facts.solution_fact(role), figures)


def _figures_of_solution(job: Job, candidate: Candidate) -> facts.SolutionFigures:
    """What the history keeps of a network: its error in the search, its costs and layer widths."""
    graph = job.context.graph
    flops = graph.flops(candidate.genome)
    return {
        "id": candidate.id,
        "train_error": candidate.train_error,
        "test_error": None,
        "flops": flops,
        "flops_pruned": 1.0 - flops / graph.flops(graph.full_genome()),
        "params": graph.params(candidate.genome),
        "widths": {layer: width for layer, (width, _) in graph.widths(candidate.genome).items()},
    }


def _forget_measurements(run: RunFolder, role: str, id_: int) -> None:
    """Drop what was measured of the network that held a role before, if another one takes its place."""
    before = run.history.get_fact(facts.solution_fact(role))
    if before is None or before["id"] == id_:
        return
    for fact in (facts.LATENCY, facts.LATENCY_LOADED):
        if (seconds := run.history.get_fact(fact)) is not None:
            others = {name: latency for name, latency in seconds.items() if name != role}
            run.history.set_fact(fact, others)
    bench = run.history.get_fact(facts.BENCH)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        networks = {name: figures for name, figures in bench["networks"].items() if name != role}
        warnings = [line for line in bench.get("warnings", ()) if not str(line).startswith(f"{role} ")]
        run.history.set_fact(facts.BENCH, {**bench, "networks": networks, "warnings": warnings})
