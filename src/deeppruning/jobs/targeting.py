"""A target of a run: the network that meets its limits, or a note on the nearest candidate.

With a limit on a cost, the best candidate within it by the search's score is fine-tuned; if a network that
was fine-tuned before also meets the limits with a lower error, it is taken instead. With a limit on the error
alone, it is the cheapest candidate that meets it after fine-tuning, found by bisecting the Pareto front in a
few trainings. Errors are measured on images that neither search nor fine-tuning uses, never on the test set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from deeppruning.amounts import percent
from deeppruning.errors import InputError, RunError, WeightsError
from deeppruning.jobs.finetuning import Finished, Tuned
from deeppruning.jobs.finishing import finetuning_of, finish, keep_failed
from deeppruning.jobs.identity import original
from deeppruning.jobs.job import Job
from deeppruning.jobs.solution import Solution, load
from deeppruning.latency import Conditions
from deeppruning.limits import Limits
from deeppruning.roles import TARGET
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.records import Candidate
from deeppruning.searching.events import TargetSettled
from deeppruning.searching.proving import Proofs
from deeppruning.targets.choice import (
    Choice,
    CostMeter,
    best_within,
    choose,
    describe,
    front_of,
    thin_ones,
)

TRAININGS = 3  # at most, beside the picks, to find the cheapest network within an error


@dataclass(frozen=True, eq=False)
class Targeting:
    """The choice of a target in a run after its search."""

    job: Job
    run: RunFolder
    limits: Limits
    variant: str = ""  # of fine-tuning, see `Finetuning`
    role: str = TARGET  # a run may have several

    @cached_property
    def meter(self) -> CostMeter:
        """Counts and measures the costs of this job's candidates."""
        conditions = Conditions.of(self.job.search, self.job.context.device)
        return CostMeter(
            self.job.context, conditions, Proofs.of_run(self.job.context, self.run.history, self.job.observer)
        )

    def by_cost(self) -> Choice | None:
        """The best candidate within the limits of cost, or the nearest; None where no cost is limited."""
        if self.limits.objective is None:
            return None
        return choose(self.run.history.candidates(), self.limits, self.meter)

    def settle(self, choice: Choice, tuned: Mapping[int, Finished]) -> Solution:
        """Save the candidate that was chosen by cost, or one in `tuned` within the limits with a lower error.

        Raises Unmet where there is none.
        """
        if not choice.met:
            self._unmet(choice.candidate, choice.figures)
        finalists = [choice, *self._others_within(choice, tuned)]
        errors = [self._error(one.candidate, tuned.get(one.candidate.id)) for one in finalists]
        trained = [isinstance(tuned.get(one.candidate.id), Tuned) for one in finalists]
        # The first is the one that was chosen: it stays if others have the same error, or none is known.
        best = finalists[min(range(len(finalists)), key=lambda at: (not trained[at], errors[at]))]
        found, figures = tuned.get(best.candidate.id), dict(best.figures)
        if not isinstance(found, Tuned):
            if not self.run.solution(self.role).is_file():  # one that is there stays
                keep_failed(self.job, self.run, self.role, choice.candidate, str(found))
            raise Unmet(f"the fine-tuning of candidate {choice.candidate.id} failed: {found}")
        met = True
        if self.limits.bounds_error:
            figures["error"] = self._error(best.candidate, found)
            met = figures["error"] <= self.most_error
        why = (
            "" if best is choice else f"; on data set aside it errs less than candidate {choice.candidate.id}"
        )
        return self._keep(best.candidate, found, figures, met=met, why=why)

    def _others_within(self, choice: Choice, tuned: Mapping[int, Finished]) -> list[Choice]:
        """Other fine-tuned networks, such as the picks, that keep the limits of cost."""
        ids = {id_ for id_, found in tuned.items() if isinstance(found, Tuned)} - {choice.candidate.id}
        others = [one for one in self.run.history.candidates() if one.id in ids and not one.genome.all()]
        found = [best_within([one], self.limits, self.meter) for one in others]
        return [one for one in found if one.met and self.meter.proofs.hold(one.candidate)]

    def by_error(self, tuned: Mapping[int, Finished]) -> Solution:
        """Save the cheapest candidate within the error; raises Unmet if none of those that were tried is.

        `tuned` are those fine-tuned already. The bisection assumes that the error rises along the front.
        """
        proofs, left = self.meter.proofs, TRAININGS
        candidates = [one for one in thin_ones(self.run.history.candidates()) if one.id not in proofs.refused]
        candidates = [one for one in candidates if one.id not in tuned or proofs.hold(one)]
        front = front_of(candidates)
        held = {one.id for one in front}
        front += [one for one in candidates if one.id in tuned and one.id not in held]
        front.sort(key=lambda one: (-one.known.objectives[1], one.id))
        trained = {id_: found for id_, found in tuned.items() if any(one.id == id_ for one in front)}
        errors = {one.id: self._error(one, trained[one.id]) for one in front if one.id in trained}
        while True:
            good = max((at for at, one in enumerate(front) if self._keeps(errors, one)), default=-1)
            bad = min(
                (at for at in range(good + 1, len(front)) if front[at].id in errors), default=len(front)
            )
            if bad - good <= 1 or not left:
                break
            one = front[(good + bad) // 2]
            if not proofs.hold(one):
                front.remove(one)
                continue
            left -= 1
            trained[one.id] = self.finetune([one])[one.id]
            errors[one.id] = self._error(one, trained[one.id])
        tried = [one for one in front if one.id in errors]
        if not tried:
            raise RunError(proofs.why_none())
        chosen = front[good] if good >= 0 else min(tried, key=lambda one: errors[one.id])
        figures = {"error": errors[chosen.id]}
        found = trained[chosen.id]
        if good < 0 or not isinstance(found, Tuned):
            self._unmet(chosen, figures)
        assert isinstance(found, Tuned)
        return self._keep(chosen, found, figures, met=True)

    def finetune(self, candidates: Iterable[Candidate]) -> dict[int, Finished]:
        """Fine-tune candidates by the job's options; what is on disk is not done again."""
        genomes = {one.id: one.genome for one in candidates}
        roles = dict.fromkeys(genomes, (self.role,))
        found = finetuning_of(self.job, self.run, self.variant).finish(self.job.backend, genomes, roles)
        broken = [one for one in found.values() if isinstance(one, RunError)]
        if broken:
            raise RunError(f"fine-tuning failed; what was done is kept, try again\n{broken[0]}")
        return found

    @cached_property
    def most_error(self) -> float:
        """The highest error allowed on the images that are set aside."""
        found = self.job.task.validation_error(original(self.job.context))
        if found is None:
            raise InputError(f"there is no data set aside on which {self.limits} could be checked")
        return self.limits.most_error(found)

    def _keeps(self, errors: Mapping[int, float], one: Candidate) -> bool:
        return errors.get(one.id, math.inf) <= self.most_error

    def _error(self, candidate: Candidate, found: Finished | None) -> float:
        if not isinstance(found, Tuned):
            return math.inf
        model = self.job.context.graph.prune(candidate.genome)
        model.load_state_dict(found.weights)
        error = self.job.task.validation_error(model)
        return math.inf if error is None else float(error)

    def tuned_before(self) -> dict[int, Finished]:
        """The run's networks that were fine-tuned in the same variant."""
        kept = self.run.history.facts()
        ids = {kept[key]["id"] for key in kept if facts.solution_role(key) is not None}
        return finetuning_of(self.job, self.run, self.variant).done(ids)

    def _keep(
        self, candidate: Candidate, found: Tuned, figures: Mapping[str, float], *, met: bool, why: str = ""
    ) -> Solution:
        solution = finish(self.job, self.run, self.role, candidate, found)
        which = "met by" if met else "not met by the best within the cost,"
        self._note(candidate.id, f"{which} candidate {candidate.id}: {self._told(figures)}{why}", met=met)
        return solution

    def _unmet(self, nearest: Candidate, figures: Mapping[str, float]) -> None:
        raise Unmet(f"not met; the nearest is candidate {nearest.id}: {self._told(figures)}")

    def _told(self, figures: Mapping[str, float]) -> str:
        told = describe(self.limits, figures, self.meter.whole)
        if "error" not in figures:
            return told
        return f"{told}, which is {percent(self.most_error)}, on data set aside"

    def _note(self, id_: int | None, note: str, *, met: bool) -> None:
        figures: facts.TargetFigures = {"asked": str(self.limits), "id": id_, "met": met, "note": note}
        self.run.history.set_fact(facts.target_fact(self.role), figures)
        self.job.observer(TargetSettled(self.role, str(self.limits), met, note))

    def conclude(self, choice: Choice | None, tuned: Mapping[int, Finished]) -> Solution | str:
        """The saved target, or a note on the nearest candidate, which the run records."""
        try:
            if choice is None:
                return self.by_error(tuned)
            return self.settle(choice, tuned)
        except Unmet as unmet:
            self._note(None, str(unmet), met=False)
            return str(unmet)


class Unmet(RunError):
    """No candidate keeps the limits; the message describes the nearest."""


def read_targets(job: Job, run: RunFolder) -> dict[str, Solution | str]:
    """The targets that a run has saved, or why there is none; targets not yet settled are left out."""
    known = facts.targets_in(run.history.facts())
    read = {role: _read_target(job, run, role, one) for role, one in known.items()}
    return {role: found for role, found in read.items() if found is not None}


def _read_target(job: Job, run: RunFolder, role: str, known: facts.TargetFigures) -> Solution | str | None:
    kept = run.history.get_fact(facts.solution_fact(role))
    if known["id"] is None:
        return known["note"]
    path = run.solution(role)
    candidate = next((one for one in run.history.candidates() if one.id == known["id"]), None)
    if kept is None or candidate is None or candidate.train_error is None or not path.is_file():
        return None
    if kept["id"] != candidate.id:  # killed while another took its place
        return None
    try:
        model = load(path, job.model)
    except WeightsError:  # damaged since: it is made again
        return None
    return Solution(
        role=role,
        id=candidate.id,
        genome=candidate.genome,
        train_error=candidate.train_error,
        test_error=kept.get("test_error"),
        flops=kept["flops"],
        flops_pruned=kept["flops_pruned"],
        params=kept["params"],
        path=path,
        lr_factor=kept.get("lr_factor", 1.0),
        refitted="not_helped" in kept,
        network=model,
    )
