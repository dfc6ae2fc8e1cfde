"""How a candidate of a run becomes a solution: its fine-tuning as the job has it, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace

from deeppruning.genome import Genome
from deeppruning.jobs.finetuning import Finetuning, Tuned
from deeppruning.jobs.job import Job
from deeppruning.jobs.solution import Solution, save_solution
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.searching.events import SolutionSaved
from deeppruning.searching.task import Classification


def finetuning_of(job: Job, run: RunFolder, variant: str = "") -> Finetuning:
    # A task of the user's own is not trained by our options, so its seed is the run's.
    seed = job.finetune.seed if isinstance(job.task, Classification) else job.context.seed
    return Finetuning(run, replace(job.context, task=job.task), job.observer, seed, variant)


def keep_failed(job: Job, run: RunFolder, role: str, pick: Candidate, reason: str) -> None:
    """A pick that came to nothing, as whoever shows the run finds it: figures of the search, and why."""
    figures: facts.SolutionFigures = {
        "id": pick.id,
        "train_error": pick.train_error,
        "test_error": None,
        **costs_of(job, pick.genome),
        "failure": (reason.strip().splitlines() or [""])[-1],
    }
    run.history.set_fact(facts.solution_fact(role), figures)


def costs_of(job: Job, genome: Genome) -> facts.SolutionFigures:
    """What a thin network costs, and how wide its layers are."""
    graph = job.context.graph
    flops = graph.flops(genome)
    return {
        "flops": flops,
        "flops_pruned": 1.0 - flops / graph.flops(graph.full_genome()),
        "params": graph.params(genome),
        "widths": {layer: kept for layer, (kept, _) in graph.widths(genome).items()},
    }


def save(job: Job, run: RunFolder, role: str, candidate: Candidate, tuned: Tuned) -> Solution:
    assert candidate.train_error is not None  # without one it is neither picked nor fine-tuned
    graph = job.context.graph
    model = graph.prune(candidate.genome)
    model.load_state_dict(tuned.weights)
    costs = costs_of(job, candidate.genome)
    solution = Solution(
        role=role,
        id=candidate.id,
        model=model.eval(),
        genome=candidate.genome,
        train_error=candidate.train_error,
        test_error=tuned.test_error,
        flops=costs["flops"],
        flops_pruned=costs["flops_pruned"],
        params=costs["params"],
        path=run.solution(role),
        lr_factor=tuned.lr_factor,
        refitted=tuned.refitted,
    )
    save_solution(solution, graph, job.description)
    _forget_measured(run, role, solution.id)
    figures: facts.SolutionFigures = {
        "id": solution.id,
        "train_error": solution.train_error,
        "test_error": solution.test_error,
        **costs,
    }
    if solution.lr_factor != 1.0:
        figures["lr_factor"] = solution.lr_factor
    if tuned.refitted:
        assert tuned.before is not None
        figures["not_helped"] = (tuned.before, tuned.after, job.task.validation_images)
    run.history.set_fact(facts.solution_fact(role), figures)
    job.observer(SolutionSaved(solution))
    return solution


def _forget_measured(run: RunFolder, role: str, id_: int) -> None:
    """What was measured of the network that held a role says nothing of another one that takes its place."""
    before = run.history.get_fact(facts.solution_fact(role))
    if before is None or before["id"] == id_:
        return
    for brief in (facts.LATENCY, facts.LATENCY_LOADED):
        if (seconds := run.history.get_fact(brief)) is not None:
            run.history.set_fact(brief, {name: one for name, one in seconds.items() if name != role})
    bench = run.history.get_fact(facts.BENCH)
    if isinstance(bench, dict) and isinstance(bench.get("networks"), dict):
        networks = {name: one for name, one in bench["networks"].items() if name != role}
        warnings = [line for line in bench.get("warnings", ()) if not str(line).startswith(f"{role} ")]
        run.history.set_fact(facts.BENCH, {**bench, "networks": networks, "warnings": warnings})
