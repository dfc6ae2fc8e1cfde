"""The whole job, step by step: measure the original, search, fine-tune the three, save them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from deeppruning.backends.base import Backend
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.evolution.selection import Picks
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.pruning.candidate import Context
from deeppruning.pruning.events import Observer, SolutionSaved, Started, ignore
from deeppruning.pruning.finetuning import ORIGINAL_ID, Finetuning, Finished, Tuned
from deeppruning.pruning.identity import check_example, check_inputs, check_options, keep_options, original
from deeppruning.pruning.result import Original, Result
from deeppruning.pruning.runner import search
from deeppruning.pruning.solution import Solution, save_solution
from deeppruning.pruning.task import Classification, Task
from deeppruning.roles import ORIGINAL, candidate_name
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.system.commands import command
from deeppruning.system.threads import torch_threads
from deeppruning.system.versions import computed_by
from deeppruning.training.tensors import hash_tensors


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a run needs; made by the Python interface and by the command line."""

    model: nn.Module
    context: Context
    task: Task  # the context's task may be a lighter copy, without the whole training set
    search: SearchConfig
    finetune: FinetuneConfig
    backend: Backend
    description: Mapping[str, str] = field(default_factory=dict)  # what is written beside a solution
    observer: Observer = ignore


def execute(job: Job, run: RunFolder) -> Result:
    """Run the job to its end, or go on with it: what is in the run folder is not done again."""
    keep_options(run)
    check_inputs(job.context, run, job.search.threads)
    _check_same_task(job, run)
    _announce(job, run)
    picks = search(job.context, job.search, run.history, job.backend, job.observer)
    tuned = _finetune(job, run, picks)
    original = _keep_original(run, tuned[ORIGINAL_ID])
    solutions: dict[str, Solution] = {}
    failed: dict[str, str] = {}
    for role, pick in picks.items():
        found = tuned[pick.id]
        if isinstance(found, Tuned):
            solutions[role] = _save(job, run, role, pick, found)
        else:
            failed[role] = str(found)
            _keep_failed(job, run, role, pick, str(found))
    _refuse_unfinished(tuned)
    run.history.set_fact(facts.FINISHED, True)
    return Result(
        original=original,
        picks=solutions,
        failed=failed,
        candidates=[one for one in run.history.candidates() if one.evaluation is not None],
        run_dir=run.path,
    )


def finetune_one(job: Job, run: RunFolder, id_: int, *, variant: str = "") -> Solution:
    """Fine-tune any candidate of a run and save it as candidate-ID; what is on disk already is not redone."""
    check_options(run)
    check_example(job.context, run)
    candidates = {candidate.id: candidate for candidate in run.history.candidates()}
    if id_ not in candidates:
        known = f"they run from 0 to {max(candidates)}" if candidates else "there are none yet"
        raise InputError(f"{run.path} has no candidate {id_}; {known}")
    candidate = candidates[id_]
    if candidate.evaluation is None:
        raise InputError(
            f"candidate {id_} has not been evaluated yet; go on with `{command('resume', run.path)}`"
        )
    if candidate.train_error is None:
        raise InputError(
            f"candidate {id_} {candidate.status} in the search ({candidate.reason}); choose another"
        )
    role = candidate_name(id_)
    genomes, roles = {id_: candidate.genome}, {id_: (role,)}
    found = _finetuning(job, run, variant).finish(job.backend, genomes, roles)[id_]
    if not isinstance(found, Tuned):
        diverged = isinstance(found, Diverged)
        advice = "; try other options, for example a lower learning rate" if diverged else ""
        raise RunError(f"fine-tuning of candidate {id_} failed: {found}{advice}")
    return _save(job, run, role, candidate, found)


def hash_network(model: nn.Module) -> str:
    """A hash of names, shapes and values of a network's state."""
    return hash_tensors(model.state_dict())


def check_same_network(run: RunFolder, model: nn.Module) -> None:
    """Refuse to go on with another network than the one the run was started with."""
    expected = run.config.get("model", {}).get("fingerprint")
    if expected is not None and expected != hash_network(model):
        raise RunError(
            f"{run.path} was started with another network or other weights; "
            "give the same ones to go on, or start a new run"
        )


def _check_same_task(job: Job, run: RunFolder) -> None:
    """Refuse to go on with other data: half of the candidates would have been judged on something else."""
    given = job.task.fingerprint()
    known = run.history.get_fact(facts.TASK, given)
    if known != given:
        raise RunError(
            f"{run.path} was started with other training data; give the same to go on, or start a new run"
        )
    run.history.set_fact(facts.TASK, given)


def _announce(job: Job, run: RunFolder) -> None:
    """Say what is about to happen, with the original's error on the sample as a check of data and weights."""
    graph = job.context.graph
    full = graph.full_genome()
    known = run.history.get_fact(facts.ORIGINAL_FIGURES)
    if known is None:
        error = _untrained_error(job)
        known = {"train_error": error, "flops": graph.flops(full), "params": graph.params(full)}
        run.history.set_fact(facts.VERSIONS, computed_by())
        run.history.set_fact(facts.LAYERS, graph.layer_genes())
        run.history.set_fact(facts.BRANCHES, _branches(graph))
        # Last, for where it is known the others are not written again.
        run.history.set_fact(facts.ORIGINAL_FIGURES, known)
    job.observer(
        Started(
            run=str(run.path),
            genes=graph.num_genes,
            generations=job.search.generations,
            evaluations=job.search.evaluations,
            known=sum(row.evaluation is not None for row in run.history.candidates()),
            original_error=known["train_error"],
            original_flops=known["flops"],
            original_params=known["params"],
        )
    )


def _untrained_error(job: Job) -> float | None:
    """The original's error on the sample; a network without one is not worth a search."""
    reason = ""
    try:
        with torch_threads(job.search.threads):
            error = job.task.untrained_error(original(job.context))
        if error is None or math.isfinite(error):
            return error
        reason = f"its error is {error}"
    except Diverged as diverged:
        reason = str(diverged)
    raise InputError(f"the network to be pruned is of no use on the data candidates are judged on: {reason}")


def _finetuning(job: Job, run: RunFolder, variant: str = "") -> Finetuning:
    # A task of the user's own is not trained by our options, so its seed is the run's.
    seed = job.finetune.seed if isinstance(job.task, Classification) else job.context.seed
    return Finetuning(run, replace(job.context, task=job.task), job.observer, seed, variant)


def _branches(graph: ChannelGraph) -> dict[str, list[list[int]]]:
    """Layer -> sets of genes without any one of which it is gone, with the branch it stands in."""
    layers = graph.layer_genes()
    found: dict[str, list[list[int]]] = {}
    for group in graph.groups:
        for layer in group.branch:
            if layer in layers:
                found.setdefault(layer, []).append(list(group.genes))
    return found


def _finetune(job: Job, run: RunFolder, picks: Picks[Candidate]) -> dict[int, Finished]:
    """Each picked candidate once, whatever roles it holds, and the original for comparison."""
    genomes = {pick.id: pick.genome for pick in picks} | {ORIGINAL_ID: job.context.graph.full_genome()}
    roles: dict[int, tuple[str, ...]] = {ORIGINAL_ID: (ORIGINAL,)}
    for role, pick in picks.items():
        roles[pick.id] = (*roles.get(pick.id, ()), role)
    return _finetuning(job, run).finish(job.backend, genomes, roles)


def _keep_original(run: RunFolder, tuned: Finished) -> Original:
    figures: facts.OriginalFigures = {
        "test_error": None,
        **(run.history.get_fact(facts.ORIGINAL_FIGURES) or {}),
    }
    if isinstance(tuned, Tuned):
        figures["test_error"] = tuned.test_error
    else:
        figures["failure"] = str(tuned)
    run.history.set_fact(facts.ORIGINAL_FIGURES, figures)
    return Original(**figures)


def _refuse_unfinished(tuned: Mapping[int, Finished]) -> None:
    """Once the others are saved, say which could not be trained; a divergence is an outcome, not an error."""
    broken = {id_: one for id_, one in tuned.items() if isinstance(one, RunError)}
    if broken:
        told = "\n".join(f"candidate {id_}: {one}" for id_, one in broken.items())
        raise RunError(f"fine-tuning failed; the rest is saved, resume the run to try again\n{told}")


def _keep_failed(job: Job, run: RunFolder, role: str, pick: Candidate, reason: str) -> None:
    """A pick that came to nothing, as whoever shows the run finds it: figures of the search, and why."""
    figures: facts.SolutionFigures = {
        "id": pick.id,
        "train_error": pick.train_error,
        "test_error": None,
        **_costs(job, pick.genome),
        "failure": (reason.strip().splitlines() or [""])[-1],
    }
    run.history.set_fact(facts.solution_fact(role), figures)


def _costs(job: Job, genome: Genome) -> facts.SolutionFigures:
    """What a thin network costs, and how wide its layers are."""
    graph = job.context.graph
    flops = graph.flops(genome)
    return {
        "flops": flops,
        "flops_pruned": 1.0 - flops / graph.flops(graph.full_genome()),
        "params": graph.params(genome),
        "widths": {layer: kept for layer, (kept, _) in graph.widths(genome).items()},
    }


def _save(job: Job, run: RunFolder, role: str, candidate: Candidate, tuned: Tuned) -> Solution:
    assert candidate.train_error is not None  # without one it is neither picked nor fine-tuned
    graph = job.context.graph
    model = graph.prune(candidate.genome)
    model.load_state_dict(tuned.weights)
    costs = _costs(job, candidate.genome)
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
    )
    save_solution(solution, graph, job.description)
    figures: facts.SolutionFigures = {
        "id": solution.id,
        "train_error": solution.train_error,
        "test_error": solution.test_error,
        **costs,
    }
    if solution.lr_factor != 1.0:
        figures["lr_factor"] = solution.lr_factor
    run.history.set_fact(facts.solution_fact(role), figures)
    job.observer(SolutionSaved(solution))
    return solution
