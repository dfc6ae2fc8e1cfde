"""A job carried out, step by step: measure the original, search, fine-tune the picks and the target, save."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.finetuning import ORIGINAL_ID, Finished, Tuned
from deeppruning.jobs.finishing import finetuning_of, finish, keep_failed
from deeppruning.jobs.identity import (
    check_example,
    check_inputs,
    check_options,
    check_same_task,
    keep_options,
)
from deeppruning.jobs.prepare import Job
from deeppruning.jobs.result import Original, Result
from deeppruning.jobs.solution import Solution, original_network
from deeppruning.jobs.targeting import Targeting, Unmet, read_targets
from deeppruning.limits import Limits
from deeppruning.roles import ORIGINAL, TARGET, candidate_name, target_name
from deeppruning.runs import Candidate, History, RunFolder, facts
from deeppruning.searching.events import Remark, Stage, Started
from deeppruning.searching.loop import search
from deeppruning.searching.moving import sketch, tell_of_move
from deeppruning.searching.proving import Proofs
from deeppruning.searching.task import Classification
from deeppruning.system.commands import command
from deeppruning.system.device import torch_threads
from deeppruning.system.versions import computed_by
from deeppruning.targets.aiming import widths_line, within


def run(job: Job, folder: RunFolder) -> Result:
    """Run the job to its end, or continue it: what is in the folder is not done again."""
    keep_options(folder)
    check_inputs(job.context, folder, job.search.threads)
    check_same_task(job.task, folder)
    _announce_search(job, folder)
    _keep_augmentation(job, folder.history)
    targeting = Targeting(job, folder, job.target)
    proofs = targeting.meter.proofs
    limits = within(job.context.graph, job.target, job.context.plan)
    picks = search(job.context, job.search, folder.history, job.backend, job.observer, proofs, limits)
    targets = read_targets(job, folder)
    awaited = bool(job.target) and TARGET not in targets
    choice = targeting.by_cost() if awaited else None
    chosen = {TARGET: choice.candidate} if choice is not None and choice.met else {}
    tuned = _finetune_picks(job, folder, {**dict(picks.items()), **chosen})
    folder.history.set_fact(facts.TEST_IMAGES, job.task.test_images)
    original = _record_original_test(job, folder, tuned[ORIGINAL_ID])
    solutions: dict[str, Solution] = {}
    failed: dict[str, str] = {}
    for role, pick in picks.items():
        outcome = tuned[pick.id]
        if isinstance(outcome, Tuned):
            solutions[role] = finish(job, folder, role, pick, outcome)
        else:
            failed[role] = str(outcome)
            keep_failed(job, folder, role, pick, str(outcome))
    failures = {id_: outcome for id_, outcome in tuned.items() if isinstance(outcome, RunError)}
    if failures:  # a divergence is an outcome, no error
        listed = "\n".join(f"candidate {id_}: {failure}" for id_, failure in failures.items())
        raise RunError(f"fine-tuning failed; the rest is saved, resume the run to try again\n{listed}")
    if awaited:
        targets[TARGET] = targeting.conclude(choice, tuned)
    for role, target in targets.items():
        if isinstance(target, Solution):
            solutions[role] = target
        else:
            failed[role] = target
    folder.history.set_fact(facts.FINISHED, True)
    return Result(
        original=original,
        picks=solutions,
        failed=failed,
        candidates=[each for each in folder.history.candidates() if each.evaluation is not None],
        run_dir=folder.path,
        meter=replace(targeting.meter, proofs=proofs.after_run()),
        target_notes=facts.target_lines(folder.history.facts()),
    )


def pick_one(
    job: Job, folder: RunFolder, limits: Limits, *, variant: str = "", instead: bool = False
) -> Solution:
    """Fine-tune and save the candidate of a finished run that meets limits.

    It is added to the targets of the run, or replaces the last one (`instead`). Raises Unmet, and leaves the
    run as it is, if no candidate meets the limits.
    """
    check_options(folder)
    check_example(job.context, folder)
    if not limits:
        raise InputError("give the limits of the network: for example flops=40%")
    if not folder.history.get_fact(facts.FINISHED):
        raise RunError(f"{folder.path} is not finished; continue it with `{command('resume', folder.path)}`")
    role = _role_of(limits, facts.targets_in(folder.history.facts()), instead=instead)
    _keep_augmentation(job, folder.history)
    try:
        return _solution_within_limits(Targeting(job, folder, limits, variant, role), folder)
    except Unmet as unmet:
        raise Unmet(facts.target_line(role, str(limits), str(unmet))) from None


def _role_of(limits: Limits, targets: Mapping[str, facts.TargetFigures], *, instead: bool) -> str:
    """The role of a target: the same limits keep the role that they have."""
    same = [role for role, figures in targets.items() if figures["asked"] == str(limits)]
    saved = [role for role, figures in targets.items() if figures["id"] is not None]
    if same or (instead and saved):
        return (same or saved)[-1]
    return next(role for role in map(target_name, count(1)) if role not in saved)


def _solution_within_limits(targeting: Targeting, folder: RunFolder) -> Solution:
    """The candidate within the limits, fine-tuned and saved."""
    choice = targeting.by_cost()
    if choice is not None:
        trained = targeting.finetune([choice.candidate]) if choice.met else {}
        return targeting.settle(choice, {**targeting.tuned_before(), **trained})
    # The run's own picks count if they were trained without the images that the error is checked on.
    picks = folder.history.picks()
    ids = set() if targeting.variant else set(picks[max(picks)].values())
    chosen = [candidate for candidate in folder.history.candidates() if candidate.id in ids]
    return targeting.by_error(targeting.finetune(chosen))


def finetune_one(job: Job, folder: RunFolder, id_: int, *, variant: str = "") -> Solution:
    """Fine-tune any candidate of a run and save it as candidate-ID; what is saved already is not redone."""
    check_options(folder)
    check_example(job.context, folder)
    candidate = _evaluated_candidate(folder, id_)
    proofs = Proofs.of_run(job.context, folder.history, job.observer)
    if not proofs.hold(candidate):
        raise RunError(f"candidate {id_} is refused: {proofs.refused[id_]}; choose another")
    _keep_augmentation(job, folder.history)
    role = candidate_name(id_)
    genomes, roles = {id_: candidate.genome}, {id_: (role,)}
    outcome = finetuning_of(job, folder, variant).finish(job.backend, genomes, roles)[id_]
    if not isinstance(outcome, Tuned):
        diverged = isinstance(outcome, Diverged)
        advice = "; try other options, for example a lower learning rate" if diverged else ""
        raise RunError(f"fine-tuning of candidate {id_} failed: {outcome}{advice}")
    return finish(job, folder, role, candidate, outcome)


def _evaluated_candidate(folder: RunFolder, id_: int) -> Candidate:
    """The candidate of this number; one without an error is refused."""
    candidates = {candidate.id: candidate for candidate in folder.history.candidates()}
    if id_ not in candidates:
        range_ = f"they run from 0 to {max(candidates)}" if candidates else "there are none yet"
        raise InputError(f"{folder.path} has no candidate {id_}; {range_}")
    candidate = candidates[id_]
    if candidate.evaluation is None:
        again = command("resume", folder.path)
        raise InputError(f"candidate {id_} is not evaluated yet; continue the run with `{again}`")
    if candidate.train_error is None:
        raise InputError(
            f"candidate {id_} {candidate.status} in the search ({candidate.reason}); choose another"
        )
    return candidate


def _keep_augmentation(job: Job, history: History) -> None:
    """Record what was found about augmentation, and report it."""
    if job.augmentation is None:
        return
    if history.get_fact(facts.AUGMENTATION) != job.augmentation.figures:
        history.set_fact(facts.AUGMENTATION, job.augmentation.figures)
    if job.augmentation.note:
        job.observer(Remark("augmentation", job.augmentation.note))


def _announce_search(job: Job, folder: RunFolder) -> None:
    """Report what is about to happen, with the original's error on the sample as a check."""
    graph, history = job.context.graph, folder.history
    if job.context.plan is not None and history.get_fact(facts.LATENCY_PLAN) is None:
        history.set_fact(facts.LATENCY_PLAN, job.context.plan.to_table())
    figures = history.get_fact(facts.ORIGINAL_FIGURES) or _record_original(job, history)
    job.observer(
        Started(
            run=str(folder.path),
            genes=graph.num_genes,
            generations=job.search.generations,
            evaluations=job.search.evaluations if job.search.generations else None,
            known=sum(row.evaluation is not None for row in history.candidates()),
            original_error=figures["train_error"],
            original_flops=figures["flops"],
            original_params=figures["params"],
            widths=widths_line(job.search.round_to, history.get_fact(facts.MULTIPLES)),
        )
    )
    remarks = [("sample", job.sample_note), ("original", figures.get("doubt", ""))]
    for about, text in [*remarks, *(("network", note) for note in graph.notes)]:
        if text:
            job.observer(Remark(about, text))
    tell_of_move(folder, job.observer)


def _record_original(job: Job, history: History) -> facts.OriginalFigures:
    """Measure the original at the start of a run, and record all that is known of it."""
    graph = job.context.graph
    job.observer(Stage("original"))
    full, error = graph.full_genome(), _untrained_error(job)
    figures: facts.OriginalFigures = {
        "train_error": error,
        "flops": graph.flops(full),
        "params": graph.params(full),
    }
    if error is not None and (doubt := job.task.doubt(error)):
        figures["doubt"] = doubt
    history.set_fact(facts.VERSIONS, computed_by())
    history.set_fact(facts.NETWORK_SKETCH, sketch(job.model.state_dict()))
    if isinstance(job.task, Classification):
        history.set_fact(facts.SAMPLE_SKETCH, sketch(job.task.sample.key_tensors()))
    if job.multiples is not None:
        history.set_fact(facts.MULTIPLES, dict(job.multiples))
    history.set_fact(facts.LAYERS, graph.layer_genes())
    history.set_fact(facts.BRANCHES, _branches_by_layer(graph))
    if graph.notes:
        history.set_fact(facts.GRAPH_NOTES, graph.notes)
    # Last, for where it is recorded the others are not written again.
    history.set_fact(facts.ORIGINAL_FIGURES, figures)
    return figures


def _untrained_error(job: Job) -> float | None:
    """The original's error on the sample; a network without one is not worth a search."""
    reason = ""
    try:
        with torch_threads(job.search.threads):
            error = job.task.untrained_error(original_network(job.context))
        if error is None or math.isfinite(error):
            return error
        reason = f"its error is {error}"
    except Diverged as diverged:
        reason = str(diverged)
    raise InputError(f"the network cannot be pruned: it fails on the sample it is evaluated on: {reason}")


def _branches_by_layer(graph: ChannelGraph) -> dict[str, list[list[int]]]:
    """For each layer, the sets of genes without any of which its branch, and so the layer, is removed."""
    layers = graph.layer_genes()
    branches: dict[str, list[list[int]]] = {}
    for group in graph.groups:
        for layer in group.branch:
            if layer in layers:
                branches.setdefault(layer, []).append(list(group.genes))
    return branches


def _finetune_picks(job: Job, folder: RunFolder, picks: Mapping[str, Candidate]) -> dict[int, Finished]:
    """Each picked candidate once, whatever roles it holds, and the original for comparison."""
    genomes = {pick.id: pick.genome for pick in picks.values()}
    genomes[ORIGINAL_ID] = job.context.graph.full_genome()
    roles: dict[int, tuple[str, ...]] = {ORIGINAL_ID: (ORIGINAL,)}
    for role, pick in picks.items():
        roles[pick.id] = (*roles.get(pick.id, ()), role)
    tuning = finetuning_of(job, folder)
    outcomes = tuning.finish(job.backend, genomes, roles)
    tuning.forget_answers()
    return outcomes


def _record_original_test(job: Job, folder: RunFolder, tuned: Finished) -> Original:
    """Add the original's test error, or why there is none, to its figures."""
    figures: facts.OriginalFigures = {
        "test_error": None,
        **(folder.history.get_fact(facts.ORIGINAL_FIGURES) or {}),
    }
    if isinstance(tuned, Tuned):
        figures["test_error"] = tuned.test_error
        doubt = "" if tuned.test_error is None else job.task.doubt(tuned.test_error, tested=True)
        if doubt:
            figures["doubt"] = doubt
    else:
        figures["failure"] = str(tuned)
    folder.history.set_fact(facts.ORIGINAL_FIGURES, figures)
    return Original(**figures)
