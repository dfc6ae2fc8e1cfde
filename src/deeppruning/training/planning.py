"""What is measured once before a training: epochs that fit into a time, learning rate, number format.

All follow from a few steps of a copy of the network. A run records what is found, and keeps it when it is
resumed: its result then does not depend on how busy the machine is that day.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any

import torch
from torch import nn

from deeppruning.config import FinetuneConfig
from deeppruning.errors import Diverged
from deeppruning.genome import derived_seed
from deeppruning.system.device import precision_of
from deeppruning.training.evaluate import mode
from deeppruning.training.lesson import Lesson
from deeppruning.training.loop import (
    Epochs,
    forgetting_norms,
    forked_random_state,
    in_evaluation,
    make_optimizer,
    rate,
)

USUAL_RATES = {"sgd": 0.005, "muon": 0.005}  # by optimizer, for batches of 64
FACTORS = (0.4, 1.0, 2.5)  # of the usual rate, that are tried where a training is long enough for a trial
USUAL_BATCH = 64
TRIAL_SHARE = 0.1  # of the steps of a training that all trials together may take
FEWEST_TRIED, MOST_TRIED = 16, 64  # steps of the trial of one rate
TIMED, WARM = 6, 2  # steps that are timed, after those that are not
READ_AHEAD = 4  # batches that a process reads ahead, at most; those that wait already take no time
JUDGED = 8  # batches by which rates are compared
ALIKE = 0.05  # of the lowest loss: those that are no further above it are about as low
TIMING_SHARE = 0.1  # of a time that is given, which measuring a step may take where batches are read ahead
FEWEST_STEPS = 10  # of a training; fewer are not worth it
FEWEST_FORMATTED = 480  # steps of a training whose number format is worth measuring
CLEARLY_FASTER = 0.85  # of the time of float32: bfloat16 rounds, and a busy machine measures badly


@dataclass(frozen=True)
class Plan:
    """The length, the learning rate and the number format of one network's training."""

    epochs: float
    lr: float
    losses: dict[str, float] | None = None  # on held-out data after the trial of each rate; None: no trial
    step_seconds: float | None = None  # where a time was given
    precision: str = "auto"


def plan_training(
    model: nn.Module, lesson: Lesson, config: FinetuneConfig, device: torch.device, each_epoch: float = 0.0
) -> Plan:
    """The plan of a training with these options; the network stays as it is.

    What is done after `each_epoch`, in seconds, is part of a time that is given.
    """
    trainer = _Trainer(model, lesson, config, device)
    batches = len(lesson.batches(0))
    epochs, seconds, precision = config.epochs, None, config.precision
    if config.minutes is not None:
        seconds = trainer.seconds()
        epochs = epochs_within(60 * config.minutes, seconds, batches, each_epoch)
    assert epochs is not None
    if format_is_open(config, device, round(epochs * batches)):
        ratio = trainer.time_of_bfloat16()
        precision = "bfloat16" if ratio <= CLEARLY_FASTER else "float32"
        trainer = replace(trainer, config=replace(config, precision=precision))
        if config.minutes is not None and seconds is not None and precision == "bfloat16":
            seconds *= ratio
            epochs = epochs_within(60 * config.minutes, seconds, batches, each_epoch)
    if config.lr is not None:
        return Plan(epochs, config.lr, None, seconds, precision)
    usual = usual_rate(config)
    steps = trial_steps(round(epochs * batches), len(FACTORS))
    if not steps:
        return Plan(epochs, usual, None, seconds, precision)
    rates = [float(f"{factor * usual:.3g}") for factor in FACTORS]
    lr, losses = best_rate(rates, lambda each: trainer.trial(each, steps))
    return Plan(epochs, lr, losses, seconds, precision)


def leaves_open(lesson: Lesson, config: FinetuneConfig, device: torch.device) -> bool:
    """Whether these options leave anything to `plan_training`."""
    if config.minutes is not None or config.lr is None:
        return True
    return format_is_open(config, device, config.steps(len(lesson.batches(0))))


def format_is_open(config: FinetuneConfig, device: torch.device, steps: int) -> bool:
    """Whether the number format of a training of so many steps is to be measured: only on a CPU.

    >>> format_is_open(FinetuneConfig(), torch.device("cpu"), 479)
    False
    """
    return config.precision == "auto" and device.type == "cpu" and steps >= FEWEST_FORMATTED


def usual_rate(config: FinetuneConfig) -> float:
    """The learning rate that fits most refitted networks; SGD's grows with the batch, whose mean it follows.

    >>> usual_rate(FinetuneConfig(batch_size=128)), usual_rate(FinetuneConfig(optimizer="muon"))
    (0.01, 0.005)
    """
    grown = config.batch_size / USUAL_BATCH if config.optimizer == "sgd" else 1.0
    return USUAL_RATES[config.optimizer] * grown


@dataclass(frozen=True, eq=False)
class _Trainer:
    """Short trainings of copies of a network."""

    model: nn.Module
    lesson: Lesson
    config: FinetuneConfig
    device: torch.device

    def seconds(self) -> float:
        """Of one step, data and teacher included."""
        batches = self._endless_batches()
        with self._trial_copy() as epochs:
            # A number of the loss, so that a GPU is waited for.
            return time_of_step(
                lambda: float(epochs.step(next(batches), 0.0).loss),
                ahead=READ_AHEAD * self.lesson.readers,
                most=TIMING_SHARE * 60 * (self.config.minutes or math.inf),
            )

    def time_of_bfloat16(self) -> float:
        """Processor time of a step in bfloat16, as a share of one in float32; infinite if it cannot be."""
        if precision_of(self.model) != torch.float32:
            return math.inf
        batches = self._endless_batches()
        try:
            with self._trial_copy("float32") as single, self._trial_copy("bfloat16") as half:
                # In turns and in processor time, so that other programs disturb neither.
                times = [
                    [_processor_seconds(each, batch) for each in (single, half)]
                    for batch in islice(batches, WARM + TIMED)
                ][WARM:]
        except Exception:  # of code that insists on float32: no reason to stop
            return math.inf
        ratios = sorted(halved / whole for whole, halved in times)
        return ratios[len(ratios) // 2]

    def trial(self, lr: float, steps: int) -> float:
        """The loss on the batches that follow, after so many steps by the schedule."""
        batches = self._endless_batches()
        with self._trial_copy() as epochs:
            for number in range(steps):
                epochs.step(next(batches), rate(self.config.schedule, lr, number, steps))
            with mode(epochs.model, training=False), torch.no_grad():
                judged = islice(batches, JUDGED)
                losses = [float(self.lesson.taught(epochs.model, batch).loss) for batch in judged]
        loss = sum(losses) / len(losses)
        if not math.isfinite(loss):
            raise Diverged(f"the loss is {loss} after {steps} steps at the learning rate {lr:g}")
        return loss

    def _endless_batches(self) -> Iterator[Any]:
        """Without end, in another order than those of the training, whose epochs count from 1."""
        return chain.from_iterable(self.lesson.batches(-number) for number in count())

    @contextmanager
    def _trial_copy(self, precision: str | None = None) -> Iterator[Epochs]:
        """A copy of the network in training mode, with the same random numbers each time."""
        model = deepcopy(self.model).to(self.device)
        config = replace(
            self.config, lr=usual_rate(self.config), precision=precision or self.config.precision
        )
        optimizer = make_optimizer(model, config, self.device)
        with (
            torch.enable_grad(),
            forked_random_state(self.device),
            mode(model, training=True),
            forgetting_norms(model),
            in_evaluation(self.lesson.teacher, self.device),
        ):
            torch.manual_seed(derived_seed(self.config.seed, 0, "layers"))
            yield Epochs(model, optimizer, self.lesson, config, self.device)


def epochs_within(seconds: float, step_seconds: float, batches: int, each_epoch: float = 0.0) -> float:
    """How many epochs of so many batches fit into a time; none if that is hardly any step.

    >>> epochs_within(60.0, 0.1, 400), epochs_within(60.0, 0.1, 400, each_epoch=5.0)
    (1.5, 1.25)
    >>> epochs_within(0.5, 0.1, 400)
    0.0
    """
    whole = int(seconds / (batches * step_seconds + each_epoch))
    steps = max(
        min(int((seconds - rounds * each_epoch) / step_seconds), rounds * batches)
        for rounds in (whole, whole + 1)
    )
    if steps < FEWEST_STEPS:  # a test takes about as long as there is: it comes on top
        steps = min(int(seconds / step_seconds), batches)
    return steps / batches if steps >= FEWEST_STEPS else 0.0


def _processor_seconds(training: Epochs, batch: Any) -> float:
    """Of one step that changes no weights."""
    start = time.process_time()
    training.step(batch, 0.0)
    return time.process_time() - start


def time_of_step(step: Callable[[], object], ahead: int = 0, most: float = math.inf) -> float:
    """The median seconds of a step, or the mean where so many batches are read `ahead`.

    These come in bursts, so that only many steps together show how long one waits; fewer where that takes
    more than `most` seconds.
    """
    times: list[float] = []
    began = time.perf_counter()
    for number in range(WARM + TIMED + 2 * ahead):
        start = time.perf_counter()
        late = number >= WARM + TIMED and start - began > most
        if late and times:
            break
        step()
        if number >= WARM + ahead or late:
            times.append(time.perf_counter() - start)
    return sum(times) / len(times) if ahead else sorted(times)[len(times) // 2]


def trial_steps(steps: int, rates: int) -> int:
    """How many steps each rate is tried for, before a training of so many steps; 0 if that is too short.

    >>> trial_steps(3900, 3), trial_steps(390, 3), trial_steps(98, 3)
    (64, 0, 0)
    """
    each = int(TRIAL_SHARE * steps / rates)
    return 0 if each < FEWEST_TRIED else min(each, MOST_TRIED)


def best_rate(rates: Sequence[float], trial: Callable[[float], float]) -> tuple[float, dict[str, float]]:
    """The highest rate after whose trial the loss is about the lowest, and all losses.

    A training goes on for longer than a trial, and there higher rates gain more. One that diverges is out.

    >>> [best_rate([0.1, 0.2, 0.9], lambda rate: 1 + abs(rate - due))[0] for due in (0.1, 0.15, 0.8)]
    [0.1, 0.2, 0.9]
    """
    losses = {}
    for lr in rates:
        try:
            losses[lr] = trial(lr)
        except Diverged:
            losses[lr] = math.inf
    least = min(losses.values())
    alike = [lr for lr in losses if losses[lr] <= least + ALIKE * abs(least)]
    best = max(alike) if least < math.inf else min(losses)
    return best, {f"{lr:g}": loss for lr, loss in losses.items() if loss < math.inf}
