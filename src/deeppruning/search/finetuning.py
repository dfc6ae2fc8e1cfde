"""Fine-tuning on the whole training set, a round at a time on any backend, each round kept on disk.

Workers hold nothing between rounds: an item carries the state of its candidate in, the outcome carries
it out, and only the process that owns the run folder writes there.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from safetensors.torch import load
from torch import Tensor

from deeppruning.atomic import write_atomically
from deeppruning.backends.base import Backend, Session
from deeppruning.errors import DAMAGE, RunError
from deeppruning.runs.folder import RunFolder
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.runs.records import EpochRow
from deeppruning.search.candidate import Context, Genome, candidate_seed
from deeppruning.search.events import EpochDone
from deeppruning.search.states import read_state, write_state
from deeppruning.training.reports import EpochReport
from deeppruning.training.tensors import read_tensors, tensor_bytes

FOLDER = "finetune"
ORIGINAL = -1  # the number of the original network among the candidates


@dataclass(frozen=True, eq=False)
class Round:
    """One round of one candidate, with what the round before it left."""

    genome: Genome
    number: int
    state: bytes | None
    last: bool  # test the network and bring its weights; round 0 does nothing else
    start: bytes | None = None  # weights to begin with, as safetensors, where not those of the cut


@dataclass(frozen=True, eq=False)
class RoundDone:
    """What a round came to; the last one brings the weights as safetensors, the test error with them."""

    report: EpochReport | None
    state: bytes | None
    weights: bytes | None = None


def run_round(context: Context, item: Round) -> RoundDone:
    """Train a candidate for one round, cut anew from the original weights and set to its state."""
    task = context.task
    thin = context.graph.prune(item.genome)
    report = None
    if item.start is not None and item.state is None:
        thin.load_state_dict(load(item.start))
    with scratch_folder() as folder:
        checkpoint = folder / "checkpoint"
        if item.state is not None:
            checkpoint.write_bytes(item.state)
        if item.number:
            seed = candidate_seed(context.seed, item.genome)
            report = task.finetune(thin, round=item.number, seed=seed, checkpoint=checkpoint)
        state = checkpoint.read_bytes() if checkpoint.exists() else None
    if not item.last:
        return RoundDone(report, state)
    tested = report.test_error if report is not None else None  # of these very weights: not measured twice
    facts = {"test_error": json.dumps(task.test_error(thin) if tested is None else tested)}
    return RoundDone(report, state, weights=tensor_bytes(thin.state_dict(), facts))


@dataclass(frozen=True, eq=False)
class Tuned:
    """A finished network: its weights and its error on the test set, where there is one."""

    weights: dict[str, Tensor]
    test_error: float | None


@dataclass(frozen=True, eq=False)
class Finetuning:
    """The fine-tuning of some candidates of a run; what is on disk already is not done again."""

    run: RunFolder
    context: Context
    observer: Callable[[EpochDone], None]
    variant: str = ""  # names a second training of a candidate by other options, kept apart from the first

    def finish(
        self, backend: Backend, genomes: Mapping[int, Genome], roles: Mapping[int, tuple[str, ...]]
    ) -> dict[int, Tuned]:
        """Train every candidate to the end, side by side, in a session of its own."""
        if all(self._final(id_).exists() for id_ in genomes):
            return {id_: self._read(id_) for id_ in genomes}
        with backend.open(run_round, self.context) as session:
            return self.train(session, genomes, roles)

    def train(
        self,
        session: Session[Round, RoundDone],
        genomes: Mapping[int, Genome],
        roles: Mapping[int, tuple[str, ...]],
        starts: Mapping[int, bytes] = MappingProxyType({}),
    ) -> dict[int, Tuned]:
        """Train every candidate to the end, side by side; the costliest starts each round.

        The original is only tested. `starts` are the weights of those that do not begin as cut.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        order = sorted(genomes, key=lambda id_: -int(self.context.graph.flops(genomes[id_])))
        done = {id_: self._rounds_done(id_) for id_ in order}
        while waiting := [id_ for id_ in order if not self._final(id_).exists()]:
            items = [(id_, self._next(genomes[id_], id_, done[id_], starts.get(id_))) for id_ in waiting]
            self._run(session, items, roles)
            for id_ in waiting:
                done[id_] += 1
        return {id_: self._read(id_) for id_ in order}

    def _next(self, genome: Genome, id_: int, done: int, start: bytes | None) -> Round:
        state = read_state(self._state(id_, done)) if done and self._state(id_, done).exists() else None
        rounds = 0 if id_ == ORIGINAL else self.context.task.rounds
        number = min(done + 1, rounds)
        return Round(genome, number, state, last=number == rounds, start=start)

    def _run(
        self,
        session: Session[Round, RoundDone],
        items: Iterable[tuple[int, Round]],
        roles: Mapping[int, tuple[str, ...]],
    ) -> None:
        numbers = {id_: item.number for id_, item in items}
        for outcome in session.map(items):
            if outcome.value is None:
                called = ", ".join(roles[outcome.key])
                raise RunError(
                    f"fine-tuning of candidate {outcome.key} ({called}) failed:\n{outcome.failure}"
                )
            self._keep(outcome.key, numbers[outcome.key], outcome.value, roles[outcome.key])

    def _keep(self, id_: int, number: int, done: RoundDone, roles: tuple[str, ...]) -> None:
        """Epoch first, state second: a kill in between repeats the round and records the same epoch."""
        if done.report is not None:
            report = done.report
            self.run.history.record_epoch(
                EpochRow(
                    solution=f"candidate-{id_}{self.variant and '/'}{self.variant}",
                    epoch=report.epoch,
                    train_loss=report.train_loss,
                    train_error=report.train_error,
                    test_error=report.test_error,
                    lr=report.lr,
                    seconds=report.seconds,
                )
            )
            self.observer(EpochDone(id_, roles, self.context.task.rounds, report))
        if done.weights is not None:
            write_atomically(self._final(id_), done.weights)
        else:
            write_state(self._state(id_, number), done.state or b"")
        self._state(id_, number - 1).unlink(missing_ok=True)

    def _read(self, id_: int) -> Tuned:
        path, advice = self._final(id_), "delete it and resume the run, which then repeats this fine-tuning"
        weights, facts = read_tensors(path, error=RunError, advice=advice)
        try:
            test_error = json.loads(facts["test_error"])
        except DAMAGE as error:
            raise RunError(f"{path} lacks its test error; {advice}") from error
        if test_error is not None and type(test_error) not in (int, float):
            raise RunError(f"{path} has no number for its test error; {advice}")
        return Tuned(weights, test_error)

    def _rounds_done(self, id_: int) -> int:
        stem = f"{_name(id_)}.round-"
        found = [path.name.removeprefix(stem) for path in self._folder.glob(f"{stem}*")]
        return max((int(number) for number in found if number.isdigit()), default=0)

    def _state(self, id_: int, number: int) -> Path:
        return self._folder / f"{_name(id_)}.round-{number}"

    def _final(self, id_: int) -> Path:
        return self._folder / f"{_name(id_)}.safetensors"

    @property
    def _folder(self) -> Path:
        return self.run.path / FOLDER / self.variant


def _name(id_: int) -> str:
    return "original" if id_ == ORIGINAL else f"candidate-{id_}"
