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
from deeppruning.jobs.prepare import Job
from deeppruning.jobs.solution import Solution, load, original_network
from deeppruning.latency import Conditions
from deeppruning.limits import Limits
from deeppruning.roles import TARGET
from deeppruning.runs import Candidate, RunFolder, facts
from deeppruning.searching.events import TargetSettled
from deeppruning.searching.proving import Proofs
from deeppruning.targets.choice import (
    Choice,
    CostMeter,
    best_within,
    choose,
    describe,
    pareto_front,
    thin_candidates,
)

TRAININGS = 3  # at most, in addition to the picks, to find the cheapest network within an error


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
            raise self._unmet_by(choice.candidate, choice.figures)
        finalists = [choice, *self._others_within(choice, tuned)]
        outcomes = [tuned.get(finalist.candidate.id) for finalist in finalists]
        errors = [self._held_out_error(finalist.candidate, tuned) for finalist in finalists]
        # The first is the one that was chosen: it stays if others have the same error, or none is measured.
        place = min(range(len(finalists)), key=lambda at: (not isinstance(outcomes[at], Tuned), errors[at]))
        best, outcome = finalists[place], outcomes[place]
        if not isinstance(outcome, Tuned):
            if not self.run.solution(self.role).is_file():  # an earlier network stays
                keep_failed(self.job, self.run, self.role, choice.candidate, str(outcome))
            raise Unmet(f"the fine-tuning of candidate {choice.candidate.id} failed: {outcome}")
        figures, met, why = dict(best.figures), True, ""
        if self.limits.bounds_error:
            figures["error"] = errors[place]
            met = errors[place] <= self.most_error
        if best is not choice:
            why = f"; on held-out data its error is lower than that of candidate {choice.candidate.id}"
        return self._save_target(best.candidate, outcome, figures, met=met, why=why)

    def _others_within(self, choice: Choice, tuned: Mapping[int, Finished]) -> list[Choice]:
        """Other fine-tuned networks, such as the picks, that keep the limits of cost."""
        others = [
            best_within([candidate], self.limits, self.meter)
            for candidate in self.run.history.candidates()
            if isinstance(tuned.get(candidate.id), Tuned)
            and candidate.id != choice.candidate.id
            and not candidate.genome.all()
        ]
        return [other for other in others if other.met and self.meter.proofs.hold(other.candidate)]

    def by_error(self, tuned: Mapping[int, Finished]) -> Solution:
        """Save the cheapest candidate within the error; raises Unmet if none of those that were tried is.

        `tuned` are those fine-tuned already. The bisection assumes that the error rises along the front.
        """
        proofs, left = self.meter.proofs, TRAININGS
        candidates = [
            candidate
            for candidate in thin_candidates(self.run.history.candidates())
            if candidate.id not in proofs.refused and (candidate.id not in tuned or proofs.hold(candidate))
        ]
        front = pareto_front(candidates)
        front += [each for each in candidates if each.id in tuned and each not in front]
        front.sort(key=lambda candidate: (-candidate.evaluated.objectives[1], candidate.id))
        trained = {each.id: tuned[each.id] for each in front if each.id in tuned}
        errors = {each.id: self._held_out_error(each, trained) for each in front if each.id in trained}
        while True:
            within = [errors.get(candidate.id, math.inf) <= self.most_error for candidate in front]
            good = max((at for at, keeps in enumerate(within) if keeps), default=-1)
            bad = min(
                (at for at in range(good + 1, len(front)) if front[at].id in errors), default=len(front)
            )
            if bad - good <= 1 or not left:
                break
            middle = front[(good + bad) // 2]
            if not proofs.hold(middle):
                front.remove(middle)
                continue
            left -= 1
            trained |= self.finetune([middle])
            errors[middle.id] = self._held_out_error(middle, trained)
        tried = [candidate for candidate in front if candidate.id in errors]
        if not tried:
            raise RunError(proofs.why_none())
        chosen = front[good] if good >= 0 else min(tried, key=lambda candidate: errors[candidate.id])
        figures, outcome = {"error": errors[chosen.id]}, trained[chosen.id]
        if good < 0 or not isinstance(outcome, Tuned):
            raise self._unmet_by(chosen, figures)
        return self._save_target(chosen, outcome, figures, met=True)

    def finetune(self, candidates: Iterable[Candidate]) -> dict[int, Finished]:
        """Fine-tune candidates by the job's options; what is on disk is not done again."""
        genomes = {candidate.id: candidate.genome for candidate in candidates}
        roles = dict.fromkeys(genomes, (self.role,))
        outcomes = finetuning_of(self.job, self.run, self.variant).finish(self.job.backend, genomes, roles)
        for outcome in outcomes.values():
            if isinstance(outcome, RunError):
                raise RunError(f"fine-tuning failed; what was done is kept, try again\n{outcome}")
        return outcomes

    @cached_property
    def most_error(self) -> float:
        """The highest error allowed on held-out data."""
        error = self.job.task.validation_error(original_network(self.job.context))
        if error is None:
            raise InputError(f"there is no held-out data on which {self.limits} could be checked")
        return self.limits.most_error(error)

    def _held_out_error(self, candidate: Candidate, tuned: Mapping[int, Finished]) -> float:
        """The error on held-out data; infinite where it cannot be measured."""
        outcome = tuned.get(candidate.id)
        if not isinstance(outcome, Tuned):
            return math.inf
        model = self.job.context.graph.prune(candidate.genome)
        model.load_state_dict(outcome.weights)
        error = self.job.task.validation_error(model)
        return math.inf if error is None else float(error)

    def tuned_before(self) -> dict[int, Finished]:
        """The run's networks that were fine-tuned in the same variant."""
        ids = {figures["id"] for figures in facts.solutions_in(self.run.history.facts()).values()}
        return finetuning_of(self.job, self.run, self.variant).done(ids)

    def _save_target(
        self, candidate: Candidate, tuned: Tuned, figures: Mapping[str, float], *, met: bool, why: str = ""
    ) -> Solution:
        """Save the network of the target and note how it meets the limits."""
        solution = finish(self.job, self.run, self.role, candidate, tuned)
        which = "met by" if met else "not met by the best within the cost,"
        self._note_target(
            candidate.id, f"{which} candidate {candidate.id}: {self._describe_figures(figures)}{why}", met=met
        )
        return solution

    def _unmet_by(self, nearest: Candidate, figures: Mapping[str, float]) -> Unmet:
        return Unmet(f"not met; the nearest is candidate {nearest.id}: {self._describe_figures(figures)}")

    def _describe_figures(self, figures: Mapping[str, float]) -> str:
        text = describe(self.limits, figures, self.meter.whole)
        if "error" not in figures:
            return text
        return f"{text}, that is {percent(self.most_error)}, on held-out data"

    def _note_target(self, id_: int | None, note: str, *, met: bool) -> None:
        """Record and report the outcome of the target."""
        figures: facts.TargetFigures = {"asked": str(self.limits), "id": id_, "met": met, "note": note}
        self.run.history.set_fact(facts.target_fact(self.role), figures)
        self.job.observer(TargetSettled(self.role, str(self.limits), met, note))

    def conclude(self, choice: Choice | None, tuned: Mapping[int, Finished]) -> Solution | str:
        """The saved target, or a note on the nearest candidate, which the run records."""
        try:
            return self.by_error(tuned) if choice is None else self.settle(choice, tuned)
        except Unmet as unmet:
            self._note_target(None, str(unmet), met=False)
            return str(unmet)


class Unmet(RunError):
    """No candidate keeps the limits; the message describes the nearest."""


def read_targets(job: Job, run: RunFolder) -> dict[str, Solution | str]:
    """The targets that a run has saved, or why there is none; targets not yet settled are left out."""
    targets = facts.targets_in(run.history.facts())
    read = {role: _read_saved_target(job, run, role, target) for role, target in targets.items()}
    return {role: solution for role, solution in read.items() if solution is not None}


def _read_saved_target(
    job: Job, run: RunFolder, role: str, target: facts.TargetFigures
) -> Solution | str | None:
    """A saved target, its note, or None if it has to be made again."""
    if target["id"] is None:
        return target["note"]
    figures, path = run.history.get_fact(facts.solution_fact(role)), run.solution(role)
    candidate = next((each for each in run.history.candidates() if each.id == target["id"]), None)
    if figures is None or candidate is None or candidate.train_error is None or not path.is_file():
        return None
    if figures["id"] != candidate.id:  # killed while another took its place
        return None
    try:
        return Solution.of_run(role, candidate, figures, path, load(path, job.model))
    except WeightsError:  # damaged since: it is made again
        return None
