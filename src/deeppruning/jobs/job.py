"""The whole job, step by step: measure the original, search, fine-tune three and the target, save them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from torch import nn

from deeppruning.backends.base import Backend
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.augmentation import with_fitting_augmentation
from deeppruning.jobs.finetuning import ORIGINAL_ID, Finished, Tuned
from deeppruning.jobs.finishing import finetuning_of, finish, keep_failed
from deeppruning.jobs.identity import check_example, check_inputs, check_options, keep_options, original
from deeppruning.jobs.result import Original, Result
from deeppruning.jobs.solution import Solution
from deeppruning.jobs.targeting import Targeting, Unmet, read_targets
from deeppruning.limits import Limits
from deeppruning.roles import ORIGINAL, TARGET, candidate_name, target_name
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import Observer, Remark, Started, ignore
from deeppruning.searching.loop import search
from deeppruning.searching.moving import REMEDY, has_moved, is_near, sketch, tell_of_move
from deeppruning.searching.proving import Proofs
from deeppruning.searching.task import Classification, Task
from deeppruning.system.commands import command
from deeppruning.system.threads import torch_threads
from deeppruning.system.versions import computed_by
from deeppruning.targets.planning import keep_plan
from deeppruning.targets.widths import widths_line
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
    target: Limits = field(default_factory=Limits)
    measured: Mapping[str, int] | None = None  # fast multiples by runtime, where they decided the widths


def execute(job: Job, run: RunFolder) -> Result:
    """Run the job to its end, or go on with it: what is in the run folder is not done again."""
    keep_options(run)
    check_inputs(job.context, run, job.search.threads)
    _check_same_task(job, run)
    job = keep_plan(job, run.history)
    _announce(job, run)
    job = with_fitting_augmentation(job, run)
    targeting = Targeting(job, run, job.target)
    proofs = targeting.yardstick.proofs
    picks = search(job.context, job.search, run.history, job.backend, job.observer, proofs, job.target)
    targets = read_targets(job, run)
    awaited = bool(job.target) and TARGET not in targets
    choice = targeting.by_cost() if awaited else None
    chosen = {TARGET: choice.candidate} if choice is not None and choice.met else {}
    tuned = _finetune(job, run, {**dict(picks.items()), **chosen})
    run.history.set_fact(facts.TEST_IMAGES, job.task.test_images)
    original = _keep_original(job, run, tuned[ORIGINAL_ID])
    solutions: dict[str, Solution] = {}
    failed: dict[str, str] = {}
    for role, pick in picks.items():
        found = tuned[pick.id]
        if isinstance(found, Tuned):
            solutions[role] = finish(job, run, role, pick, found)
        else:
            failed[role] = str(found)
            keep_failed(job, run, role, pick, str(found))
    _refuse_unfinished(tuned)
    if awaited:
        targets[TARGET] = targeting.conclude(choice, tuned)
    for role, target in targets.items():
        if isinstance(target, Solution):
            solutions[role] = target
        else:
            failed[role] = target
    run.history.set_fact(facts.FINISHED, True)
    return Result(
        original=original,
        picks=solutions,
        failed=failed,
        candidates=[one for one in run.history.candidates() if one.evaluation is not None],
        run_dir=run.path,
        meter=replace(targeting.yardstick, proofs=proofs.after_run()),
        asked=facts.told_targets(run.history.facts()),
    )


def pick_one(
    job: Job, run: RunFolder, limits: Limits, *, variant: str = "", instead: bool = False
) -> Solution:
    """Choose among the candidates of a finished run, fine-tune the one that meets limits and save it.

    It stands beside the targets that the run has, or `instead` in the place of the last one. Raises
    Unmet, and leaves the run as it is, where none meets the limits.
    """
    check_options(run)
    check_example(job.context, run)
    if not limits:
        raise InputError("say what the network may cost or err: for example flops=40%")
    if not run.history.get_fact(facts.FINISHED):
        raise RunError(f"{run.path} is not finished; go on with `{command('resume', run.path)}`, then pick")
    role = _place_of(limits, facts.targets_in(run.history.facts()), instead=instead)
    job = with_fitting_augmentation(job, run)
    try:
        return _picked(Targeting(job, run, limits, variant, role), run)
    except Unmet as unmet:
        raise Unmet(facts.told_target(role, str(limits), str(unmet))) from None


def _place_of(limits: Limits, known: Mapping[str, facts.TargetFigures], *, instead: bool) -> str:
    """The role of a target: what was asked for before keeps its own."""
    same = [role for role, one in known.items() if one["asked"] == str(limits)]
    there = [role for role, one in known.items() if one["id"] is not None]
    if same or (instead and there):
        return (same or there)[-1]
    return next(role for role in map(target_name, count(1)) if role not in there)


def _picked(targeting: Targeting, run: RunFolder) -> Solution:
    choice = targeting.by_cost()
    if choice is not None:
        trained = targeting.finetune([choice.candidate]) if choice.met else {}
        return targeting.settle(choice, {**targeting.tuned_before(), **trained})
    # The run's own picks tell of an error if they were trained without the images that it is checked on.
    picks = run.history.picks()
    ids = set() if targeting.variant else set(picks[max(picks)].values())
    return targeting.by_error(targeting.finetune(one for one in run.history.candidates() if one.id in ids))


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
    proofs = Proofs.of_run(job, run)
    if not proofs.hold(candidate):
        raise RunError(f"candidate {id_} is not handed out: {proofs.refused[id_]}; choose another")
    job = with_fitting_augmentation(job, run)
    role = candidate_name(id_)
    genomes, roles = {id_: candidate.genome}, {id_: (role,)}
    found = finetuning_of(job, run, variant).finish(job.backend, genomes, roles)[id_]
    if not isinstance(found, Tuned):
        diverged = isinstance(found, Diverged)
        advice = "; try other options, for example a lower learning rate" if diverged else ""
        raise RunError(f"fine-tuning of candidate {id_} failed: {found}{advice}")
    return finish(job, run, role, candidate, found)


def hash_network(model: nn.Module) -> str:
    """A hash of names, shapes and values of a network's state."""
    return hash_tensors(model.state_dict())


def is_same_network(run: RunFolder, model: nn.Module) -> bool:
    """Whether a run was started with this network and these weights, as far as it knows."""
    expected = run.config.get("model", {}).get("fingerprint")
    same = expected is None or expected == hash_network(model)
    return same or is_near(run, facts.NETWORK_SKETCH, model.state_dict())


def check_same_network(run: RunFolder, model: nn.Module) -> None:
    """Refuse to go on with another network than the one the run was started with."""
    if not is_same_network(run, model):
        remedy = f" ({REMEDY})" if has_moved(run.history) else ""
        raise RunError(
            f"{run.path} was started with another network or other weights; "
            f"give the same ones to go on, or start a new run{remedy}"
        )


def _check_same_task(job: Job, run: RunFolder) -> None:
    """Refuse to go on with other data: half of the candidates would have been judged on something else."""
    given = job.task.fingerprint()
    known = run.history.get_fact(facts.TASK, given)
    sample = job.task.sample.telling() if isinstance(job.task, Classification) else {}
    # What follows the hash is about data that is not in memory.
    same_rest = str(known).partition(" ")[2] == str(given).partition(" ")[2]
    if known != given and not (same_rest and is_near(run, facts.SAMPLE_SKETCH, sample)):
        raise RunError(
            f"{run.path} was started with other training data; give the same to go on, or start a new run"
        )
    run.history.set_fact(facts.TASK, known)


def _announce(job: Job, run: RunFolder) -> None:
    """Say what is about to happen, with the original's error on the sample as a check of data and weights."""
    graph = job.context.graph
    full = graph.full_genome()
    known = run.history.get_fact(facts.ORIGINAL_FIGURES)
    if known is None:
        error = _untrained_error(job)
        known = {"train_error": error, "flops": graph.flops(full), "params": graph.params(full)}
        doubt = "" if error is None else job.task.doubt(error)
        if doubt:
            known["doubt"] = doubt
        run.history.set_fact(facts.VERSIONS, computed_by())
        run.history.set_fact(facts.NETWORK_SKETCH, sketch(job.model.state_dict()))
        if isinstance(job.task, Classification):
            run.history.set_fact(facts.SAMPLE_SKETCH, sketch(job.task.sample.telling()))
        if job.measured is not None:
            run.history.set_fact(facts.MULTIPLES, dict(job.measured))
        run.history.set_fact(facts.LAYERS, graph.layer_genes())
        run.history.set_fact(facts.BRANCHES, _branches(graph))
        if graph.notes:
            run.history.set_fact(facts.GRAPH_NOTES, graph.notes)
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
            widths=widths_line(job.search.round_to, run.history.get_fact(facts.MULTIPLES)),
        )
    )
    if known.get("doubt"):
        job.observer(Remark("original", known["doubt"]))
    for note in graph.notes:
        job.observer(Remark("network", note))
    tell_of_move(run, job.observer)


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


def _branches(graph: ChannelGraph) -> dict[str, list[list[int]]]:
    """Layer -> sets of genes without any one of which it is gone, with the branch it stands in."""
    layers = graph.layer_genes()
    found: dict[str, list[list[int]]] = {}
    for group in graph.groups:
        for layer in group.branch:
            if layer in layers:
                found.setdefault(layer, []).append(list(group.genes))
    return found


def _finetune(job: Job, run: RunFolder, picks: Mapping[str, Candidate]) -> dict[int, Finished]:
    """Each picked candidate once, whatever roles it holds, and the original for comparison."""
    genomes = {pick.id: pick.genome for pick in picks.values()}
    genomes[ORIGINAL_ID] = job.context.graph.full_genome()
    roles: dict[int, tuple[str, ...]] = {ORIGINAL_ID: (ORIGINAL,)}
    for role, pick in picks.items():
        roles[pick.id] = (*roles.get(pick.id, ()), role)
    tuning = finetuning_of(job, run)
    found = tuning.finish(job.backend, genomes, roles)
    tuning.forget_answers()
    return found


def _keep_original(job: Job, run: RunFolder, tuned: Finished) -> Original:
    figures: facts.OriginalFigures = {
        "test_error": None,
        **(run.history.get_fact(facts.ORIGINAL_FIGURES) or {}),
    }
    if isinstance(tuned, Tuned):
        figures["test_error"] = tuned.test_error
        doubt = "" if tuned.test_error is None else job.task.doubt(tuned.test_error, tested=True)
        if doubt:
            figures["doubt"] = doubt
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
