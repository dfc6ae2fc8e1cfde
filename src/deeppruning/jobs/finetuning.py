"""Fine-tuning on the whole training set, a round at a time on any backend, each round saved on disk.

Workers keep nothing between rounds: an item carries the state of its candidate in, the outcome carries
it out, and only the process that owns the run folder writes there. Round 0 cuts, refits and evaluates a
candidate and plans its training, which starts from its weights. If these have a lower error than the trained
ones on held-out data, they are the result. A candidate that diverges starts again at a tenth of the learning
rate, then at a hundredth; after that it has failed. The run records plans and reasons, so that a resumed run
neither repeats a training that diverged nor mixes two.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safetensors.torch import load
from torch import Tensor

from deeppruning.backends import Backend, Outcome
from deeppruning.errors import DAMAGE, Diverged, RunError
from deeppruning.genome import Genome
from deeppruning.jobs.rounds import TESTED, VALIDATED, Round, RoundDone, kind_of_round, run_round
from deeppruning.roles import ORIGINAL, candidate_name
from deeppruning.runs import EpochRow
from deeppruning.runs.facts import TUNING, diverged_fact, plan_fact
from deeppruning.runs.folder import FINETUNE, RunFolder
from deeppruning.searching.candidate import Context
from deeppruning.searching.events import EpochDone, FinetuneDiverged, FinetunePlanned, Stage
from deeppruning.searching.task import Task
from deeppruning.system.files import folder_within, write_atomically
from deeppruning.training.tensors import read_tensors, tensor_bytes

_TEACHER = "teacher.round-"
ORIGINAL_ID = -1  # the number of the original network among the candidates
LR_FACTORS = (1.0, 0.1, 0.01)  # of the learning rate, attempt by attempt
BEFORE = "validation_error_before"  # in the metadata of a network: on held-out data, before training
_STATE_MARK = b"deeppruning-state/1\n"


@dataclass(frozen=True, eq=False)
class Tuned:
    """A finished network: its weights and its error on the test set, where there is one."""

    weights: dict[str, Tensor]
    test_error: float | None
    lr_factor: float = 1.0  # of the learning rate of the attempt that succeeded
    before: float | None = None  # error on held-out data before training, if it was measured
    after: float | None = None  # and after it; None also if training diverged at every learning rate

    @property
    def refitted(self) -> bool:
        """Whether training did not help, so that these are the weights from before it."""
        return self.before is not None and (self.after is None or self.before < self.after)


Submit = Callable[[Iterable[tuple[int, Round]]], Iterator[Outcome[int, RoundDone]]]
# Diverged: at every learning rate, which is final. RunError: workers failed, it is tried again on resume.
Finished = Tuned | Diverged | RunError


@dataclass(frozen=True, eq=False)
class Finetuning:
    """The fine-tuning of candidates of a run; what is on disk already is not repeated."""

    run: RunFolder
    context: Context
    observer: Callable[[Stage | EpochDone | FinetuneDiverged | FinetunePlanned], None]
    seed: int
    variant: str = ""  # names a second training with other options, kept apart from the first

    def finish(
        self, backend: Backend, genomes: Mapping[int, Genome], roles: Mapping[int, tuple[str, ...]]
    ) -> dict[int, Finished]:
        """Train every candidate to the end, side by side, in a session of its own."""
        for id_ in genomes:
            self._forget_damaged(id_)
        if all(self._is_settled(id_) for id_ in genomes):
            return {id_: self._read_finished(id_) for id_ in genomes}
        with backend.open(run_round, self.context, kind=kind_of_round) as session:
            return self.train(session.map, genomes, roles)

    def done(self, ids: Iterable[int]) -> dict[int, Finished]:
        """Those of these candidates that are completely trained."""
        return {id_: self._read_finished(id_) for id_ in ids if self._final_file(id_).exists()}

    def train(
        self,
        submit: Submit,
        genomes: Mapping[int, Genome],
        roles: Mapping[int, tuple[str, ...]],
        starts: Mapping[int, bytes] = MappingProxyType({}),
    ) -> dict[int, Finished]:
        """Train every candidate to the end, side by side; the most expensive one starts each round.

        `submit` runs rounds on workers. The original is only tested. `starts` are initial weights instead of
        those of the cut. A failure of one candidate does not stop the others.
        """
        if not self.variant:
            earlier = self.run.history.get_fact(TUNING, [])
            self.run.history.set_fact(TUNING, sorted({*earlier, *genomes} - {ORIGINAL_ID}))
        order = sorted(genomes, key=lambda id_: -int(self.context.graph.flops(genomes[id_])))
        broken: dict[int, RunError] = {}
        # Before round 0, which takes minutes where inputs are large and many.
        fresh = {id_ for id_ in order if not self._is_settled(id_) and self._rounds_done(id_) < 0}
        new = len(fresh)
        if fresh:
            self.observer(Stage("networks", 0, new))
        while waiting := [id_ for id_ in order if id_ not in broken and not self._is_settled(id_)]:
            # Made as workers become free: the next one reuses the teacher's outputs of the first.
            items = ((id_, self._next_round(genomes[id_], id_, starts.get(id_))) for id_ in waiting)
            for outcome in submit(items):
                id_ = outcome.key
                if outcome.value is None:
                    broken[id_] = RunError(outcome.failure or "")
                elif outcome.value.diverged:
                    self._start_again(id_, outcome.value.diverged, roles[id_])
                else:
                    self._keep_round(id_, outcome.value, roles[id_])
                if id_ in fresh:
                    fresh.remove(id_)
                    self.observer(Stage("networks", new - len(fresh), new))
        return {id_: broken.get(id_) or self._read_finished(id_) for id_ in order}

    def _next_round(self, genome: Genome, id_: int, start: bytes | None) -> Round:
        """The next round of a candidate, with the state that the last one left."""
        done = self._rounds_done(id_)
        state = read_state(self._state_file(id_, done)) if done > 0 else None
        rounds = self._rounds_of(id_)
        number = min(done + 1, rounds)
        if done == 0 and number:
            start = tensor_bytes(self._read_file(self._start_file(id_))[0], {})
        return Round(
            genome,
            number=number,
            state=state,
            last=number == rounds,
            seed=self.seed,  # the same batches for all of them
            start=start,
            lr_factor=LR_FACTORS[len(self._divergences(id_))],
            plan=self._training_plan(id_),
            answers=self._teacher_outputs(id_, number),
        )

    def _teacher_outputs(self, id_: int, number: int) -> bytes | None:
        """The teacher's outputs of this round; if the file is damaged, they are computed again."""
        path = self._teacher_file(id_, number)
        try:
            return read_state(path) if path.exists() else None
        except RunError:
            path.unlink(missing_ok=True)
            return None

    def forget_answers(self) -> None:
        """Remove the teacher's outputs, once no further network needs them."""
        for path in self._finetune_folder.glob(f"{_TEACHER}*"):
            path.unlink(missing_ok=True)

    def _start_again(self, id_: int, reason: str, roles: tuple[str, ...]) -> None:
        """Record why an attempt diverged, which ends it; a kill before that repeats its last round."""
        solution, reasons = self._training_name(id_), [*self._divergences(id_), reason]
        stale = self._state_file(id_, self._rounds_done(id_))
        self.run.history.forget_epochs(solution)
        self.run.history.set_fact(diverged_fact(solution), reasons)
        stale.unlink(missing_ok=True)
        factor = None if self._is_lost(id_) else LR_FACTORS[len(reasons)]
        self.observer(FinetuneDiverged(id_, roles, reason, factor))

    def _divergences(self, id_: int) -> list[str]:
        """The reason of each attempt that has diverged."""
        return self.run.history.get_fact(diverged_fact(self._training_name(id_))) or []

    def _is_lost(self, id_: int) -> bool:
        """Whether a candidate diverged at every learning rate."""
        diverged = len(self._divergences(id_))
        # Nothing is trained without rounds, so a lower rate changes nothing.
        can_slow = self._rounds_of(id_) > 0 and self._planned_task(id_).slower(LR_FACTORS[1]) is not None
        return diverged >= (len(LR_FACTORS) if can_slow else 1)

    def _is_settled(self, id_: int) -> bool:
        """Whether a candidate is finished or lost."""
        return self._final_file(id_).exists() or self._is_lost(id_)

    def _rounds_of(self, id_: int) -> int:
        return 0 if id_ == ORIGINAL_ID else self._planned_task(id_).rounds

    def _training_plan(self, id_: int) -> dict[str, Any]:
        """What round 0 measured for the training of this candidate."""
        return self.run.history.get_fact(plan_fact(self._training_name(id_))) or {}

    def _planned_task(self, id_: int) -> Task:
        return self.context.task.planned(self._training_plan(id_))

    def _training_name(self, id_: int) -> str:
        """What the run's history calls this training."""
        return f"{_file_stem(id_)}{self.variant and '/'}{self.variant}"

    def _keep_round(self, id_: int, done: RoundDone, roles: tuple[str, ...]) -> None:
        """Epoch first, state second: a kill in between repeats the round and records the same epoch."""
        if done.plan:
            self.run.history.set_fact(plan_fact(self._training_name(id_)), dict(done.plan))
            self.observer(FinetunePlanned(id_, roles, **done.plan))
        rounds = self._rounds_of(id_)
        number = min(self._rounds_done(id_) + 1, rounds)
        if done.answers is not None and not self._teacher_file(id_, number).exists():
            write_state(self._teacher_file(id_, number), done.answers)
        if done.report is not None:
            figures = asdict(done.report)
            del figures["images_per_second"]  # not in the history
            self.run.history.record_epoch(EpochRow(self._training_name(id_), **figures))
            self.observer(EpochDone(id_, roles, rounds, done.report))
        if number == rounds and done.weights is not None:
            write_atomically(self._final_file(id_), self._better_of_both(id_, done.weights))
            self._start_file(id_).unlink(missing_ok=True)
        elif number == 0 and done.weights is not None:
            write_atomically(self._start_file(id_), done.weights)
        else:
            write_state(self._state_file(id_, number), done.state or b"")
        self._state_file(id_, number - 1).unlink(missing_ok=True)

    def _better_of_both(self, id_: int, tuned: bytes) -> bytes:
        """The trained network, or the one before training if that has a lower error on held-out data."""
        if not self._start_file(id_).exists():
            return tuned
        weights, begun = self._read_file(self._start_file(id_))
        facts = json.loads(tuned[8 : 8 + int.from_bytes(tuned[:8], "little")])["__metadata__"]
        before, after = json.loads(begun[VALIDATED]), json.loads(facts[VALIDATED])
        if before is None or after is None:
            return tuned
        errors = {BEFORE: json.dumps(before), **facts}
        if before < after:
            return tensor_bytes(weights, {**errors, TESTED: begun[TESTED]})
        return tensor_bytes(load(tuned), errors)

    def _forget_damaged(self, id_: int) -> None:
        """Remove a damaged network: its training is repeated, to the same weights."""
        path = self._kept_file(id_)
        try:
            self._read_finished(id_)
        except RunError as error:
            with suppress(OSError):
                path.unlink()
            if path.exists():
                raise
            warnings.warn(f"{error}: it is trained again", stacklevel=2)

    def _read_finished(self, id_: int) -> Finished:
        """The finished network of a candidate, or why there is none."""
        reasons = self._divergences(id_)
        path = self._kept_file(id_)
        lost = path != self._final_file(id_)
        if not path.exists():
            return Diverged("; then ".join(reasons))
        weights, facts = self._read_file(path)
        before, after = (json.loads(facts.get(name, "null")) for name in (BEFORE, VALIDATED))
        if lost and after is None:
            return Diverged("; then ".join(reasons))
        if lost:  # the network from before training, with its error
            before, after = after, None
        factor = 1.0 if lost else LR_FACTORS[len(reasons)]
        return Tuned(weights, json.loads(facts[TESTED]), factor, before, after)

    def _read_file(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Weights and errors of a network."""
        advice = "without it this fine-tuning is repeated"
        weights, facts = read_tensors(path, error=RunError, advice=advice)
        for name in (TESTED, VALIDATED, BEFORE):
            try:
                error = json.loads(facts[name] if name == TESTED else facts.get(name, "null"))
            except DAMAGE as damage:
                raise RunError(f"{path} lacks its test error; {advice}") from damage
            if error is not None and type(error) not in (int, float):
                raise RunError(f"{path} has no number for its test error; {advice}")
        return weights, facts

    def _rounds_done(self, id_: int) -> int:
        """The last round that is done; -1 before round 0."""
        stem = f"{self._attempt_stem(id_)}.round-"
        numbers = [path.name.removeprefix(stem) for path in self._finetune_folder.glob(f"{stem}*")]
        begun = 0 if self._start_file(id_).exists() else -1
        return max((int(number) for number in numbers if number.isdigit()), default=begun)

    def _state_file(self, id_: int, number: int) -> Path:
        return self._finetune_folder / f"{self._attempt_stem(id_)}.round-{number}"

    def _teacher_file(self, id_: int, number: int) -> Path:
        """The teacher's outputs, in each number format: no result depends on which network came first."""
        precision = self._training_plan(id_).get("precision", "auto")
        return self._finetune_folder / f"{_TEACHER}{number}{'' if precision == 'auto' else f'.{precision}'}"

    def _attempt_stem(self, id_: int) -> str:
        """The stem of the current attempt's files: the state of one that diverged is never continued."""
        diverged = len(self._divergences(id_))
        return f"{_file_stem(id_)}.retry-{diverged}" if diverged else _file_stem(id_)

    def _start_file(self, id_: int) -> Path:
        """The network that each attempt starts from."""
        return self._finetune_folder / f"{_file_stem(id_)}.start"

    def _kept_file(self, id_: int) -> Path:
        """The finished network, or the one before training if no attempt succeeded."""
        return self._final_file(id_) if self._final_file(id_).exists() else self._start_file(id_)

    def _final_file(self, id_: int) -> Path:
        return self._finetune_folder / f"{_file_stem(id_)}.safetensors"

    @property
    def _finetune_folder(self) -> Path:
        return folder_within(self.run.path, self.run.path / FINETUNE / self.variant)


def write_state(path: Path, state: bytes) -> None:
    """Save the state between two rounds with a checksum, completely or not at all."""
    write_atomically(path, _STATE_MARK + hashlib.sha256(state).digest() + state)


def read_state(path: Path) -> bytes:
    """The state that was saved; a damaged one is refused."""
    if not path.is_file():  # a pipe would block
        raise RunError(f"{path} is damaged: it is not a file; delete it and resume the run")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    start = len(_STATE_MARK) + hashlib.sha256().digest_size
    state = content[start:]
    if content[:start] != _STATE_MARK + hashlib.sha256(state).digest():
        raise RunError(
            f"{path} is damaged: it does not match its own checksum; delete it and resume the run, which "
            "then repeats this fine-tuning from its start"
        )
    return state


def _file_stem(id_: int) -> str:
    return ORIGINAL if id_ == ORIGINAL_ID else candidate_name(id_)
