"""The search loop: ask the strategy, evaluate new genomes, tell it, until its time is over; all is recorded.

Resuming is the same loop: the strategy asks for the same genomes, and the history has their evaluations.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from deeppruning.backends.base import Backend, Outcome, Session
from deeppruning.config import SearchConfig
from deeppruning.errors import RunError
from deeppruning.evolution.generations import Generations
from deeppruning.evolution.selection import Picks
from deeppruning.genome import Genome, Population
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.runs.records import Candidate, Evaluation, Status
from deeppruning.searching.candidate import Context, evaluate_candidate, settle
from deeppruning.searching.events import CandidateDone, GenerationDone, Observer, Remark
from deeppruning.searching.moving import has_moved
from deeppruning.searching.proving import Proofs
from deeppruning.searching.scan import FAILURE_SHOWN, SCANNER, ScanCut, losses_by_workers, scan_loss
from deeppruning.searching.strategies import Price, make_strategy

Submit = Callable[[Iterable[tuple[int, Genome]]], Iterable[Outcome[int, Evaluation]]]


def search(
    context: Context,
    config: SearchConfig,
    history: History,
    backend: Backend,
    observer: Observer,
    proofs: Proofs,
    within: Price | None = None,
) -> Picks[Candidate]:
    """Run the strategy to its end and return knee, heavy and light, their cuts proven.

    `within` is the share of its limits that a genome uses, for a search aimed at limits.
    """
    original_flops = context.graph.flops(context.graph.full_genome())
    candidates: dict[int, Candidate] = {}
    if memory := context.memory_remark():
        observer(memory)
    session: Session[Any, Any] = backend.open(work, context, kind=type)
    with session:
        look = partial(losses_by_workers, session, history, observer)
        strategy = make_strategy(context, config, history, look, within)
        forgetful = config.strategy == "paper" and config.selection == "comma"

        def evaluate(genomes: Population) -> list[Evaluation]:
            generation, ids = strategy.generation, strategy.ids
            origins = [(origin.operator, origin.parents) for origin in strategy.origins]
            history.record_generation(generation, zip(ids, genomes, strict=True), origins)

            def tell(rows: Sequence[int], evaluation: Evaluation, attempts: int | None) -> None:
                budget.fresh |= attempts is not None
                for row in rows:
                    candidate = Candidate(ids[row], generation, genomes[row], evaluation, *origins[row])
                    candidates[candidate.id] = candidate
                    observer(CandidateDone(candidate, attempts is not None, attempts or 1))

            needed = generation == 1 or forgetful
            name = f"generation {generation}"
            return evaluate_genomes(
                context, history, session.map, genomes, name=name, needed=needed, tell=tell
            )

        recorded = history.candidates() if has_moved(history) else []
        planned = config.generations
        budget = TimeBudget(config.minutes if config.strategy == "guided" else None, history)
        for generation, _ in enumerate(ask_evaluate_tell(strategy, evaluate, recorded), start=1):
            picks = Picks(*(candidates[pick.id] for pick in strategy.picks))
            history.record_picks(generation, {role: pick.id for role, pick in picks.items()})
            observer(GenerationDone(generation, planned, dict(picks.items()), original_flops))
            if generation == planned:
                break
            if planned is None and not strategy.novel:
                history.set_fact(facts.ENDED, generation)
                observer(Remark("budget", budget.nothing_new(generation)))
                break
            if budget.is_over(generation):
                improved = strategy.improved, config.bins
                observer(Remark("budget", budget.line(generation, planned, *improved)))
                break
    while not all(proofs.hold(pick) for pick in picks):
        left = strategy.picks_without(proofs.refused)
        if left is None:
            raise RunError(proofs.why_none())
        picks = Picks(*(candidates[pick.id] for pick in left))
    history.record_picks(generation, {role: pick.id for role, pick in picks.items()})
    return picks


def work(context: Context, item: Genome | ScanCut) -> Evaluation | float:
    """What the workers of a search do."""
    if isinstance(item, ScanCut):
        return scan_loss(context, item)
    context.forget(SCANNER)  # candidates come after the scan, and need the memory
    return evaluate_candidate(context, item)


def ask_evaluate_tell(
    strategy: Generations,
    evaluate: Callable[[Population], list[Evaluation]],
    recorded: Sequence[Candidate] = (),
) -> Iterator[list[Evaluation]]:
    """Run a strategy to its end; yields the evaluations of each generation once the strategy is told.

    A generation that is complete in `recorded` is followed, whatever this processor would propose.
    """
    while not strategy.done:
        followed = [candidate for candidate in recorded if candidate.id in strategy.ids]
        if followed and len(followed) == len(strategy.ids):
            made = [(candidate.operator, candidate.parents) for candidate in followed]
            strategy.follow(np.array([candidate.genome for candidate in followed]), made)
        evaluations = evaluate(strategy.ask())
        objectives = np.array([evaluation.objectives for evaluation in evaluations])
        strategy.tell(objectives, np.array([evaluation.judged for evaluation in evaluations]))
        yield evaluations


def evaluate_genomes(
    context: Context,
    history: History,
    submit: Submit,
    genomes: Population,
    *,
    name: str,
    needed: bool = False,
    tell: Callable[[Sequence[int], Evaluation, int | None], None] = lambda rows, evaluation, attempts: None,
) -> list[Evaluation]:
    """The evaluations of genomes, in their order; duplicates and those in the history are not repeated.

    `submit` has workers evaluate the others. `tell` is called with the rows of equal genomes, their
    evaluation and its number of attempts, None for one from the history. If all fail, an error is raised and
    the failures are not recorded, so that the run can go on once the cause is gone.
    """
    rows: dict[bytes, list[int]] = {}
    for row, genome in enumerate(genomes):
        rows.setdefault(genome.tobytes(), []).append(row)
    evaluations: dict[bytes, Evaluation] = {}
    for key, places in rows.items():
        recorded = history.evaluation(genomes[places[0]])
        if recorded is not None:
            evaluations[key] = recorded
            tell(places, recorded, None)
    missing = [(places[0], genomes[places[0]]) for key, places in rows.items() if key not in evaluations]
    for outcome in submit(missing) if missing else ():
        genome = genomes[outcome.key]
        evaluation = evaluations[genome.tobytes()] = settle(context, genome, outcome)
        if evaluation.status is Status.OK:
            history.record_evaluation(evaluation)
        tell(rows[genome.tobytes()], evaluation, outcome.attempts)
    found = [evaluations[genome.tobytes()] for genome in genomes]
    if missing or needed:
        _refuse_hopeless(name, found, needed=needed)
    for evaluation in found:
        if evaluation.status is not Status.OK:
            history.record_evaluation(evaluation)
    return found


def _refuse_hopeless(name: str, evaluations: Sequence[Evaluation], *, needed: bool) -> None:
    """Raise an error if all candidates failed, which is a mistake to be seen rather than bad luck.

    If all diverge, or the only one fails, the search can go on, unless one is `needed` to select from.
    """
    counts = Counter(evaluation.status for evaluation in evaluations)
    bearable = counts[Status.DIVERGED] > 0 or len(evaluations) == 1
    if counts[Status.OK] or (bearable and not needed):
        return
    listed = " and ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    last = max(evaluations, key=lambda evaluation: evaluation.status is Status.FAILED)
    raise RunError(
        f"no candidate of {name} could be evaluated ({listed}), so there is none to select; one of them with:"
        f"\n{last.detail[-FAILURE_SHOWN:]}"
    )


class TimeBudget:
    """Counts the time of a search over all sittings; one that was ended by it ends there again if resumed."""

    def __init__(self, minutes: float | None, history: History) -> None:
        self.minutes = minutes
        self.fresh = False  # whether anything was evaluated since `is_over` was asked
        self._history = history
        self._asked = time.monotonic()

    def is_over(self, generation: int) -> bool:
        """Whether the search ends here: another generation as long as this one would end too late."""
        if self.minutes is None:
            return False
        ended = self._history.get_fact(facts.ENDED)
        if ended is not None:
            return generation >= ended
        fresh, self.fresh = self.fresh, False
        began, self._asked = self._asked, time.monotonic()
        if not fresh:  # repeated from the history: its time is counted already
            return False
        took = self._asked - began
        spent = (self._history.get_fact(facts.SPENT) or 0.0) + took
        self._history.set_fact(facts.SPENT, spent)
        if spent + took <= 60 * self.minutes:
            return False
        self._history.set_fact(facts.ENDED, generation)
        return True

    def line(self, generation: int, planned: int | None, improved: int, ranges: int) -> str:
        """What people are told, with what more time might bring."""
        of = "" if planned is None else f" of {planned}"
        after = f"{generation}{of} generation{'s' if (planned or generation) > 1 else ''}"
        return (
            f"the budget of {self.minutes:g} minutes is spent: the search ends after {after}; the last one "
            f"improved {improved} of {ranges} cost ranges, which more time might improve further"
        )

    def nothing_new(self, generation: int) -> str:
        """What people are told where the time would be spent on networks that are evaluated already."""
        return (
            f"the search ends after {generation} generations, before its {self.minutes:g} minutes are over: "
            "it finds no network in its range of costs that it has not evaluated"
        )
