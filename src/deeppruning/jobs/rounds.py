"""One round of fine-tuning one candidate, in any process: from what the last round left to the next one."""

import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass

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

# Errors in the metadata of a network: on the test data, and on data set aside.
TESTED, VALIDATED = "test_error", "validation_error"


@dataclass(frozen=True, eq=False)
class Round:
    """One round of one candidate, with what the round before it left."""

    genome: Genome
    number: int
    state: bytes | None
    last: bool  # test the network and bring its weights
    seed: int
    start: bytes | None = None  # weights to begin with, as safetensors, where not those of the cut
    lr_factor: float = 1.0
    answers: bytes | None = None  # of the teacher in this round, where another network has asked for them


@dataclass(frozen=True, eq=False)
class RoundDone:
    """What a round came to; the last one and round 0 bring the weights as safetensors, errors with them."""

    report: EpochReport | None = None
    state: bytes | None = None
    weights: bytes | None = None
    diverged: str = ""  # why nothing came of it
    answers: bytes | None = None  # of the teacher, for other networks; only where they were not known


def run_round(context: Context, item: Round) -> RoundDone:
    """Train a candidate for one round, cut anew from the original weights and set to its state."""
    try:
        return _run_round(context, item)
    except Diverged as diverged:
        return RoundDone(diverged=str(diverged))


def _run_round(context: Context, item: Round) -> RoundDone:
    start = time.perf_counter()
    task = context.task if item.lr_factor == 1.0 else context.task.slower(item.lr_factor)
    assert task is not None
    thin = context.graph.prune(item.genome)
    report = None
    if item.state is None:
        if item.start is None:
            refit_if_asked(context, item.genome, thin, final=True)
        else:
            thin.load_state_dict(load(item.start))
    if not item.number and not item.last:
        return _before_training(task, thin, item.seed, start)
    with scratch_folder() as folder:
        checkpoint = folder / "checkpoint"
        beside = answers_beside(checkpoint)
        for path, content in ((checkpoint, item.state), (beside, item.answers)):
            if content is not None:
                path.write_bytes(content)
        if item.number:
            report = task.finetune(thin, round=item.number, seed=item.seed, checkpoint=checkpoint)
        state = checkpoint.read_bytes() if checkpoint.exists() else None
        answers = beside.read_bytes() if item.answers is None and beside.exists() else None
    if report is not None and report.train_loss is not None and not math.isfinite(report.train_loss):
        raise Diverged(f"the loss of epoch {report.epoch} is {report.train_loss}")
    if not item.last:
        return RoundDone(report, state, answers=answers)
    check_learnt(thin, "the network")
    tested = report.test_error if report is not None else None  # of these very weights: not measured twice
    tested = task.test_error(thin) if tested is None else tested
    if tested is not None and not math.isfinite(tested):
        raise Diverged(f"the test error is {tested}")
    validated = task.validation_error(thin) if item.number and task.keeps_best else None
    return RoundDone(report, state, _with_errors(thin, tested, validated), answers=answers)


def _before_training(task: Task, thin: nn.Module, seed: int, start: float) -> RoundDone:
    """The network that training starts from, and its errors as epoch 0; without any it may still learn."""
    tested = validated = None
    task.begin(thin, seed=seed)
    with suppress(Diverged):  # outputs that are not finite
        tested = task.test_error(thin)
        validated = task.validation_error(thin) if task.keeps_best else None
    tested, validated = (one if _is_finite(one) else None for one in (tested, validated))
    seconds = time.perf_counter() - start
    known = tested is not None or validated is not None
    report = EpochReport(0, None, None, tested, 0.0, 0.0, seconds) if known else None
    return RoundDone(report, weights=_with_errors(thin, tested, validated))


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _with_errors(thin: nn.Module, tested: float | None, validated: float | None) -> bytes:
    facts = {TESTED: json.dumps(tested), VALIDATED: json.dumps(validated)}
    return tensor_bytes(thin.state_dict(), facts)


def kind_of_round(item: Round) -> str:
    """What decides how long a round takes: the original is only tested, which is done in no time."""
    return "training" if item.number else "test"
