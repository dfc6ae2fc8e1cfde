"""Tune a thin network without labels: it learns its original's outputs, and the better weights are kept."""

import json
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from deeppruning.config import FinetuneConfig
from deeppruning.errors import DAMAGE, Diverged, InputError, RunError
from deeppruning.genome import Genome
from deeppruning.graph import ChannelGraph
from deeppruning.graph.calls import (
    Call,
    as_call,
    batch_size,
    check_finite,
    in_precision,
    onto,
    part_of,
    run_in_portions,
)
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.jobs.finetuning import LR_FACTORS
from deeppruning.refitting import refit
from deeppruning.searching.unlabelled import CHUNK, drift
from deeppruning.system.device import precision_of
from deeppruning.system.files import write_atomically
from deeppruning.training.checkpoint import EpochReport
from deeppruning.training.evaluate import mode
from deeppruning.training.finite import check_learnt
from deeppruning.training.imitation import Imitation
from deeppruning.training.inside import Inside
from deeppruning.training.loop import teach
from deeppruning.training.planning import Plan, plan_training

FEWEST = 64  # inputs to learn from
HELD_OUT, MOST_HELD_OUT = 10, 500  # every tenth input decides whether training helped; at most so many
NUMBERS = 2**23  # in a batch, at most: the activations of large images would not fit into memory
SMALLEST_BATCH = 8


@dataclass(frozen=True, eq=False)
class Imitated:
    """A network after tuning, with the drift of its outputs on held-out inputs before and after."""

    model: nn.Module
    before: float  # of a network that was not refitted on these inputs either
    after: float | None  # None if training diverged at every learning rate
    plan: Plan
    lr_factor: float = 1.0  # of the learning rate of the attempt that succeeded

    @property
    def helped(self) -> bool:
        """Whether the tuned weights are kept."""
        return self.after is not None and self.after < self.before

    @property
    def advice(self) -> str:
        """What to try where it did not help."""
        if not self.plan.epochs:
            return "give more minutes"
        return "give a lower learning rate (lr)" if self.after is None else "more inputs may help"

    def __str__(self) -> str:
        if not self.plan.epochs:
            return f"the time is too short for training: a step takes {self.plan.step_seconds or 0:.2g} s"
        after = "diverged" if self.after is None else f"{self.after:.4g}"
        kept = "the tuned weights are kept" if self.helped else "the refitted weights are kept"
        length = f"{self.plan.epochs:.3g} epochs at a learning rate of {self.plan.lr * self.lr_factor:g}"
        return f"tuned for {length}: drift on held-out inputs {self.before:.4g} -> {after}; {kept}"


def imitate(
    thin: nn.Module,
    original: nn.Module,
    recipe: Recipe,
    refitted_on: Callable[[Any], nn.Module],
    inputs: Any,
    config: FinetuneConfig,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
) -> Imitated:
    """Train a network to give the outputs of `original`; `thin` itself where that does not help.

    Inputs are held out to decide that. `thin` may have been refitted on them: what is trained, and compared
    before and after, is the same network `refitted_on` the others. By the `recipe` of its cut, activations
    are compared as well. With `checkpoint`, a call that was stopped continues after its last epoch, by the
    plan it had.
    """
    call = in_precision(as_call(inputs), precision_of(original))
    count = batch_size(call)
    check_enough(count)
    check_finite(call)
    every = max(HELD_OUT, -(-count // MOST_HELD_OUT))
    aside: Any = torch.arange(count) % every == every - 1
    judge = _Judge(original.to(device), part_of(call, aside), torch.device(device))
    used = part_of(call, ~aside)
    config = _with_fitting_batches(config.settled(), used)
    refitted = refitted_on(used[1] or used[0]).to(device).eval()
    inside = None
    if config.features:
        some = onto(part_of(used, slice(2)), judge.device)
        inside = Inside.of(refitted, original, recipe, some, config.features)
    lesson = Imitation(used[1] or used[0], original, config, judge.device, config.temperature, inside)
    before = judge(refitted)
    plan = _plan_of_imitation(refitted, lesson, config, judge.device, checkpoint)
    for factor in LR_FACTORS if plan.epochs else ():
        tuned = deepcopy(refitted)
        options = replace(
            config, epochs=plan.epochs, minutes=None, lr=plan.lr * factor, precision=plan.precision
        )
        part = replace(lesson, config=options)
        path = None if checkpoint is None else checkpoint.with_suffix(f".{factor:g}.safetensors")
        try:
            teach(tuned, part, options, device=device, checkpoint=path, on_epoch=on_epoch)
            check_learnt(tuned, "the tuned network")
            after = judge(tuned)
        except Diverged:
            continue
        return Imitated(tuned.eval().cpu() if after < before else thin, before, after, plan, factor)
    return Imitated(thin, before, None, plan)


def refit_again(graph: ChannelGraph, genome: Genome, inputs: Any, memory: float) -> nn.Module:
    """A network cut and refitted on other inputs; what there is to say was said at the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refit(graph, genome, inputs, memory=memory)


def check_enough(inputs: int) -> None:
    """Refuse a number of inputs that nothing can be learnt from."""
    if inputs < FEWEST:
        raise InputError(f"tuning needs at least {FEWEST} inputs to learn from, got {inputs}")


def _with_fitting_batches(config: FinetuneConfig, used: Call) -> FinetuneConfig:
    """The same with batches that fit into memory, and several of them."""
    count = batch_size(used)
    numbers = sum(leaf.numel() for leaf in tensors_in(used)) // count
    fitting = max(SMALLEST_BATCH, min(NUMBERS // max(1, numbers), count // 4))
    return replace(config, batch_size=min(config.batch_size, fitting))


def _plan_of_imitation(
    model: nn.Module,
    lesson: Imitation,
    config: FinetuneConfig,
    device: torch.device,
    checkpoint: Path | None,
) -> Plan:
    """The plan of an earlier call, or a new one, which is written down before anything is trained."""
    path = None if checkpoint is None else checkpoint.with_suffix(".plan.json")
    if path is not None and path.exists():
        try:
            return Plan(**json.loads(path.read_text()))
        except (*DAMAGE, OSError) as error:
            raise RunError(f"{path} is damaged ({error}); delete it to plan the training again") from error
    plan = plan_training(model, lesson, config, device)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(plan)).encode())
    return plan


@dataclass(frozen=True, eq=False)
class _Judge:
    """Measures how far outputs are from those of the original, on inputs that nothing learns from."""

    original: nn.Module
    call: Call
    device: torch.device

    def __call__(self, model: nn.Module) -> float:
        count, score = batch_size(self.call), 0.0
        for start in range(0, count, CHUNK):
            part = part_of(self.call, slice(start, start + CHUNK))
            with mode(model, training=False), mode(self.original, training=False):
                expected, outputs = (
                    run_in_portions(each, part, self.device) for each in (self.original, model)
                )
            moved = drift(expected, outputs)
            score += moved.judged * min(CHUNK, count - start) / count
        return score
