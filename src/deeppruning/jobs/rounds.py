"""One round of fine-tuning one candidate, in any process: from the state of the last round to the next."""

import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from safetensors.torch import load
from torch import nn

from deeppruning.errors import Diverged
from deeppruning.genome import Genome
from deeppruning.runs.leftovers import scratch_folder
from deeppruning.searching.candidate import Context, refit_if_asked
from deeppruning.searching.task import Task, answers_beside
from deeppruning.training.checkpoint import EpochReport
from deeppruning.training.finite import check_learnt
from deeppruning.training.tensors import tensor_bytes

# Errors in the metadata of a network: on test data, and on held-out data.
TESTED, VALIDATED = "test_error", "validation_error"


@dataclass(frozen=True, eq=False)
class Round:
    """One round of one candidate, with the state of the round before."""

    genome: Genome
    number: int
    state: bytes | None
    last: bool  # test the network and return its weights
    seed: int
    start: bytes | None = None  # initial weights as safetensors, instead of those of the cut
    lr_factor: float = 1.0
    plan: Mapping[str, Any] = field(default_factory=dict)  # what round 0 measured; see `Task.plan`
    answers: bytes | None = None  # the teacher's outputs of this round, if another network computed them


@dataclass(frozen=True, eq=False)
class RoundDone:
    """The outcome of a round; the last one and round 0 return weights and errors as safetensors."""

    report: EpochReport | None = None
    state: bytes | None = None
    weights: bytes | None = None
    diverged: str = ""  # the reason
    plan: Mapping[str, Any] = field(default_factory=dict)  # of round 0, for the others
    answers: bytes | None = None  # new outputs of the teacher, for other networks


def run_round(context: Context, item: Round) -> RoundDone:
    """Train a candidate for one round: cut from the original weights, then set to its state."""
    try:
        return _run_round_unguarded(context, item)
    except Diverged as diverged:
        return RoundDone(diverged=str(diverged))


def _run_round_unguarded(context: Context, item: Round) -> RoundDone:
    """The round itself; what it raises is turned into an outcome by `run_round`."""
    start = time.perf_counter()
    task: Task | None = context.task.planned(item.plan)
    if task is not None and item.lr_factor != 1.0:
        task = task.slower(item.lr_factor)
    assert task is not None
    task = task.of_network(context.graph.recipe(item.genome))
    thin = context.graph.prune(item.genome)
    report = None
    if item.state is None:
        if item.start is None:
            refit_if_asked(context, item.genome, thin, final=True)
        else:
            thin.load_state_dict(load(item.start))
    if not item.number and not item.last:
        return _round_before_training(task, thin, item.seed, start)
    with scratch_folder() as folder:
        checkpoint = folder / "checkpoint"
        answers_file = answers_beside(checkpoint)
        for path, content in ((checkpoint, item.state), (answers_file, item.answers)):
            if content is not None:
                path.write_bytes(content)
        if item.number:
            report = task.finetune(thin, round=item.number, seed=item.seed, checkpoint=checkpoint)
        state = checkpoint.read_bytes() if checkpoint.exists() else None
        new = item.answers is None and answers_file.exists()
        answers = answers_file.read_bytes() if new else None
    if report is not None and report.train_loss is not None and not math.isfinite(report.train_loss):
        raise Diverged(f"the loss of epoch {report.epoch} is {report.train_loss}")
    if not item.last:
        return RoundDone(report, state, answers=answers)
    check_learnt(thin, "the network")
    tested = report.test_error if report is not None else None  # of the same weights: not measured twice
    tested = task.test_error(thin) if tested is None else tested
    if tested is not None and not math.isfinite(tested):
        raise Diverged(f"the test error is {tested}")
    validated = task.validation_error(thin) if item.number and task.keeps_best else None
    return RoundDone(report, state, _weights_with_errors(thin, tested, validated), answers=answers)


def _round_before_training(task: Task, thin: nn.Module, seed: int, start: float) -> RoundDone:
    """The network before training, with its errors as epoch 0; without any it may still learn."""
    tested = validated = None
    task.begin(thin, seed=seed)
    with suppress(Diverged):  # outputs that are not finite
        tested = task.test_error(thin)
        validated = task.validation_error(thin) if task.keeps_best else None
    errors = (math.nan if error is None else error for error in (tested, validated))
    tested, validated = (error if math.isfinite(error) else None for error in errors)
    seconds = time.perf_counter() - start
    measured = tested is not None or validated is not None
    report = EpochReport(0, None, None, tested, 0.0, 0.0, seconds) if measured else None
    weights = _weights_with_errors(thin, tested, validated)
    return RoundDone(report, weights=weights, plan=task.plan(thin, seed=seed))


def _weights_with_errors(thin: nn.Module, tested: float | None, validated: float | None) -> bytes:
    facts = {TESTED: json.dumps(tested), VALIDATED: json.dumps(validated)}
    return tensor_bytes(thin.state_dict(), facts)


def kind_of_round(item: Round) -> str:
    """The kind of work, which decides how long a round takes: the original is only tested."""
    return "training" if item.number else "test"
