"""The search loop: ask the strategy, evaluate what is not known yet, tell it; every result is kept at once.

Resuming is the same loop: the strategy asks for the same genomes again and finds their objectives in
the history.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deeppruning.backends.base import Backend, Outcome, Session
from deeppruning.config import SearchConfig
from deeppruning.errors import RunError
from deeppruning.evolution.selection import Picks
from deeppruning.genome import Genome, Population
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.runs.records import Candidate, Evaluation, Status
from deeppruning.searching.candidate import Context, evaluate_candidate, settle
from deeppruning.searching.events import CandidateDone, GenerationDone, LayersScanned, Observer
from deeppruning.searching.moving import has_moved
from deeppruning.searching.proving import Proofs
from deeppruning.searching.scan import loss_of
from deeppruning.searching.strategies import AskAndTell, Price, make_strategy

FAILURE_SHOWN = 1500  # characters of a worker's traceback that an error message repeats


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
    session: Session[Any, Any] = backend.open(work, context, kind=type)
    with session:
        look = partial(look_by_workers, session, history, observer)
        strategy = make_strategy(context, config, history, look, within)
        recorded = history.candidates() if has_moved(history) else []
        while not strategy.done:
            _follow(strategy, recorded)
            generation, ids, genomes = strategy.generation, strategy.ids, strategy.ask()
            origins = [(origin.operator, origin.parents) for origin in strategy.origins]
            history.record_generation(generation, zip(ids, genomes, strict=True), origins)
            forgetful = config.strategy == "paper" and config.selection == "comma"
            needed = generation == 1 or forgetful
            batch = _Generation(context, history, observer, generation, origins, needed=needed)
            found = batch.evaluate(session, ids, genomes)
            known = [candidate.known for candidate in found]
            objectives = np.array([evaluation.objectives for evaluation in known])
            strategy.tell(objectives, np.array([evaluation.judged for evaluation in known]))
            candidates |= {candidate.id: candidate for candidate in found}
            picks = Picks(*(candidates[pick.id] for pick in strategy.picks))
            history.record_picks(generation, {role: pick.id for role, pick in picks.items()})
            observer(GenerationDone(generation, config.generations, dict(picks.items()), original_flops))
    while not all(proofs.hold(pick) for pick in picks):
        left = strategy.picks_without(proofs.refused)
        if left is None:
            raise RunError(proofs.why_none())
        picks = Picks(*(candidates[pick.id] for pick in left))
    history.record_picks(generation, {role: pick.id for role, pick in picks.items()})
    return picks


def _follow(strategy: AskAndTell, recorded: Sequence[Candidate]) -> None:
    """Keep to the candidates of this generation that were proposed by another processor."""
    known = [candidate for candidate in recorded if candidate.id in strategy.ids]
    if known and len(known) == len(strategy.ids):
        made = [(candidate.operator, candidate.parents) for candidate in known]
        strategy.follow(np.array([candidate.genome for candidate in known]), made)


@dataclass(frozen=True, eq=False)
class Glance:
    """A cut that a scan looks at, as an item for workers; other genomes are candidates."""

    genome: Genome


def work(context: Context, item: Genome | Glance) -> Evaluation | float:
    """What the workers of a search do."""
    return loss_of(context, item.genome) if isinstance(item, Glance) else evaluate_candidate(context, item)


def look_by_workers(
    session: Session[Any, Any], history: History, observer: Observer, genomes: Sequence[Genome]
) -> list[float]:
    """What is lost by each cut of a scan; kept as it arrives, so that a scan that is stopped goes on."""
    kept = history.get_fact(facts.SCAN)
    # One that a version with other cuts has begun is of no use.
    known: dict[str, float | None] = {} if kept is None or kept["of"] != len(genomes) else kept["losses"]
    places = [str(place) for place in range(len(genomes))]
    glances = {place: Glance(genome) for place, genome in zip(places, genomes, strict=True)}
    missing = [(place, glance) for place, glance in glances.items() if place not in known]
    for outcome in session.map(missing) if missing else ():
        if outcome.value is None:
            reason = (outcome.failure or "its worker gave no reason")[-FAILURE_SHOWN:]
            raise RunError(f"a scan of the network's layers failed:\n{reason}")
        known[outcome.key] = outcome.value if math.isfinite(outcome.value) else None
        figures: facts.ScanFigures = {"of": len(genomes), "losses": known}
        history.set_fact(facts.SCAN, figures)
        observer(LayersScanned(len(known), len(genomes)))
    losses = [known[place] for place in places]
    return [math.inf if loss is None else loss for loss in losses]


class _Generation:
    """The evaluation of one generation's genomes; equal ones are evaluated once."""

    def __init__(
        self,
        context: Context,
        history: History,
        observer: Observer,
        generation: int,
        origins: Sequence[tuple[str, tuple[int, ...]]],
        *,
        needed: bool,
    ) -> None:
        self.context = context
        self.history = history
        self.observer = observer
        self.generation = generation
        self.origins = origins
        self.needed = needed

    def evaluate(
        self, session: Session[Genome, Evaluation], ids: range, genomes: Population
    ) -> list[Candidate]:
        by_genome: dict[bytes, list[int]] = {}
        for row, genome in enumerate(genomes):
            by_genome.setdefault(genome.tobytes(), []).append(row)
        found: dict[int, Candidate] = {}

        def keep(rows: Sequence[int], evaluation: Evaluation, *, fresh: bool, attempts: int = 1) -> None:
            for row in rows:
                found[row] = Candidate(
                    ids[row], self.generation, genomes[row], evaluation, *self.origins[row]
                )
                self.observer(CandidateDone(found[row], fresh, attempts))

        missing = []
        for rows in by_genome.values():
            known = self.history.evaluation(genomes[rows[0]])
            if known is None:
                missing.append(rows)
            else:
                keep(rows, known, fresh=False)
        items = ((rows[0], genomes[rows[0]]) for rows in missing)
        for outcome in self._outcomes(session, items):
            genome = genomes[outcome.key]
            evaluation = self._record(genome, outcome)
            keep(by_genome[genome.tobytes()], evaluation, fresh=True, attempts=outcome.attempts)
        candidates = [found[row] for row in range(len(genomes))]
        evaluations = [candidate.known for candidate in candidates]
        if missing or self.needed:
            refuse_hopeless(f"generation {self.generation}", evaluations, needed=self.needed)
        for evaluation in evaluations:
            if evaluation.status is not Status.OK:
                self.history.record_evaluation(evaluation)
        return candidates

    def _outcomes(
        self, session: Session[Genome, Evaluation], items: Iterator[tuple[int, Genome]]
    ) -> Iterator[Outcome[int, Evaluation]]:
        listed = list(items)
        return session.map(listed) if listed else iter(())

    def _record(self, genome: Genome, outcome: Outcome[int, Evaluation]) -> Evaluation:
        evaluation = settle(self.context, genome, outcome)
        if evaluation.status is Status.OK:
            self.history.record_evaluation(evaluation)
        return evaluation


def refuse_hopeless(whose: str, evaluations: Sequence[Evaluation], *, needed: bool) -> None:
    """One failing candidate is bad luck; where all fail, that is a mistake to be seen.

    Nothing should be kept of them then, so that the run can go on once the cause is gone. That all
    diverge, or the only one fails, can be borne, unless one is `needed` as there is no other to select.
    """
    counts = Counter(evaluation.status for evaluation in evaluations)
    bearable = counts[Status.DIVERGED] > 0 or len(evaluations) == 1
    if counts[Status.OK] or (bearable and not needed):
        return
    told = " and ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    last = max(evaluations, key=lambda evaluation: evaluation.status is Status.FAILED)
    raise RunError(
        f"every candidate of {whose} came to nothing ({told}), so there is none to select; one of them with:"
        f"\n{last.detail[-FAILURE_SHOWN:]}"
    )
