"""The training loop: epochs and steps, SGD, learning rates; reproducible to the bit, resumable.

>>> from deeppruning.data.images import ImageSet
>>> data = ImageSet(torch.zeros(8, 1, 4, 4), torch.zeros(8, dtype=torch.int64), ("a", "b"))
>>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
>>> [report.epoch for report in fit(model, data, TrainConfig(epochs=2, crop=0))]
[1, 2]
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import unwrap
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD

from deeppruning.config import SCHEDULES, TrainConfig
from deeppruning.data.stream import Images
from deeppruning.errors import Diverged, InputError, unknown
from deeppruning.genome import derived_seed
from deeppruning.training.checkpoint import BatchReport, EpochReport, load_checkpoint, save_checkpoint
from deeppruning.training.distillation import Loss
from deeppruning.training.evaluate import evaluate, mode
from deeppruning.training.finite import check_learnt
from deeppruning.training.inside import Inside
from deeppruning.training.labelled import Labelled
from deeppruning.training.lesson import Lesson, Taught
from deeppruning.training.muon import Muon

Optimizer = SGD | Muon
# How often the loss is checked for overflow: each check makes a GPU wait until its queue is empty.
_CHECK_EVERY = 16
USUAL_MOMENTUM = 0.1  # of batch norms


def fit(
    model: nn.Module,
    train: Images,
    config: TrainConfig,
    *,
    test: Images | None = None,
    device: str | torch.device = "cpu",
    checkpoint: Path | None = None,
    teacher: nn.Module | None = None,
    distill: float = 0.0,
    temperature: float = 4.0,
    inside: Inside | None = None,
    penalty: Callable[[nn.Module], Tensor] | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    on_batch: Callable[[BatchReport], None] | None = None,
    stop_after: int | None = None,
) -> list[EpochReport]:
    """Train `model` in place and return one report per epoch, including those before a resume.

    All random choices follow from `config.seed` and the number of the epoch; the global random state is left
    as it was. With `checkpoint`, the state is written after every epoch (before `on_epoch` is called), and a
    later call with the same options resumes from it: on a CPU with the same number of threads, the weights
    are bit for bit those of a run without interruption. Model and teacher are moved to `device` and stay
    there; `inside` says where their activations are compared, too. `penalty`, a regulariser of the weights,
    is added to the loss of every batch. With `stop_after`, this call ends after that many further epochs.
    Raises Diverged if the loss or the weights overflow.
    """
    device = torch.device(device)
    loss = Loss(config.label_smoothing, teacher, distill, temperature, inside)
    lesson = Labelled.of(model, train, config, loss, device, penalty)
    return teach(
        model,
        lesson,
        config,
        test=None if test is None else lambda: evaluate(model, test, device=device).error,
        device=device,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
        on_batch=on_batch,
        stop_after=stop_after,
    )


def teach(
    model: nn.Module,
    lesson: Lesson,
    config: TrainConfig,
    *,
    test: Callable[[], float] | None = None,
    device: str | torch.device = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    on_batch: Callable[[BatchReport], None] | None = None,
    stop_after: int | None = None,
) -> list[EpochReport]:
    """Train on any lesson, as `fit` does on labelled images."""
    device = torch.device(device)
    model.to(device)
    optimizer = make_optimizer(model, config, device)
    job = lesson.description()
    history: list[EpochReport] = []
    if checkpoint is not None and checkpoint.exists():
        history = load_checkpoint(checkpoint, model, optimizer, job)
    epochs = Epochs(model, optimizer, lesson, config, device, on_batch)
    with in_evaluation(lesson.teacher, device):
        last = config.rounds if stop_after is None else min(config.rounds, len(history) + stop_after)
        for epoch in range(len(history) + 1, last + 1):
            history.append(epochs.run(epoch, test))
            if checkpoint is not None:
                save_checkpoint(checkpoint, model, optimizer, job, history)
            if on_epoch is not None:
                on_epoch(history[-1])
    return history


@dataclass
class Epochs:
    """The epochs of a training, one at a time, and what stays the same from epoch to epoch."""

    model: nn.Module
    optimizer: Optimizer
    lesson: Lesson
    config: TrainConfig
    device: torch.device
    on_batch: Callable[[BatchReport], None] | None = None

    def run(self, epoch: int, test: Callable[[], float] | None) -> EpochReport:
        """Train for one epoch, then test."""
        start = time.perf_counter()
        # Dropout draws from the global generator: seeded here, restored afterwards.
        with (
            torch.enable_grad(),
            forked_random_state(self.device),
            mode(self.model, training=True),
            forgetting_norms(self.model),
        ):
            torch.manual_seed(derived_seed(self.config.seed, epoch, "layers"))
            report = self._train_epoch(epoch, start)
        # No loss of this epoch shows its last step.
        check_learnt(self.model, f"the network after epoch {epoch} (learning rate {report.lr:g})")
        test_error = None if test is None else test()
        return EpochReport(
            epoch=epoch,
            train_loss=report.train_loss,
            train_error=report.train_error,
            test_error=test_error,
            lr=report.lr,
            images_per_second=report.images_per_second,
            seconds=time.perf_counter() - start,
        )

    def _train_epoch(self, epoch: int, start: float) -> BatchReport:
        """Train for one epoch: the mean loss and error of its batches."""
        batches = self.lesson.batches(epoch)
        steps = self.config.steps(len(batches))
        count = min(len(batches), steps - (epoch - 1) * len(batches))  # the last epoch may be a part of one
        losses = torch.zeros((), device=self.device)
        wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        seen = 0
        for number, batch in enumerate(islice(batches, count), start=1):
            lr = rate(self.config.schedule, self.config.peak, (epoch - 1) * len(batches) + number - 1, steps)
            taught = self.step(batch, lr)
            losses += taught.loss * taught.inputs
            wrong += taught.wrong
            seen += taught.inputs
            if number < count and self.on_batch is None and number % _CHECK_EVERY:
                continue
            train_loss, speed = float(losses) / seen, seen / (time.perf_counter() - start)
            if not math.isfinite(train_loss):
                raise Diverged(
                    f"training diverged in epoch {epoch}: the loss is {train_loss}; "
                    f"lower the learning rate (it was {lr:g}) or check the data for values out of range"
                )
            report = BatchReport(epoch, number, count, train_loss, int(wrong) / seen, lr, speed)
            if self.on_batch is not None:
                self.on_batch(report)
        return report

    def step(self, batch: Any, lr: float) -> Taught:
        """One step at this learning rate; the loss is that before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with _mixed_precision(self.device, self.config.precision):
            taught = self.lesson.taught(self.model, batch)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(taught.loss)
        self.optimizer.step()
        return taught._replace(loss=taught.loss.detach().float())


def in_evaluation(teacher: nn.Module | None, device: torch.device) -> AbstractContextManager[None]:
    """The teacher on the device, and in evaluation mode inside the block."""
    return nullcontext() if teacher is None else mode(teacher.to(device), training=False)


def forked_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Restores the global random state, which dropout draws from, after the block."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index if device.index is not None else 0
    return torch.random.fork_rng(devices=[index], device_type=device.type)


def _mixed_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Mixed precision in bfloat16, which needs no loss scaling; "auto" is a GPU's that supports it."""
    if precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(False):
        precision = "bfloat16"
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()


# Share of a one-cycle run in which the rate rises, and the fraction of the peak it starts from.
RISE = 0.25
START = 0.05
WARM_UP = 0.1  # share of a linear run in which the rate rises


class PlainSGD(SGD):
    """`torch.optim.SGD` without the wrappers that only `torch.compile` needs.

    They import a compiler at the first step, which takes seconds in every worker process. The steps are
    torch's own, to the bit.
    """

    add_param_group = unwrap(SGD.add_param_group)
    state_dict = unwrap(SGD.state_dict)
    load_state_dict = unwrap(SGD.load_state_dict)
    zero_grad = unwrap(SGD.zero_grad)
    step = torch.no_grad()(unwrap(SGD.step))


def make_optimizer(model: nn.Module, config: TrainConfig, device: torch.device) -> Optimizer:
    """The optimizer for all parameters of a network that require gradients."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InputError("the model has no parameters to train; set requires_grad on some of them")
    if config.optimizer == "muon":
        return Muon(trained, config.peak)
    optimizer = PlainSGD(
        trained,
        lr=config.peak,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True if device.type in ("cpu", "cuda") and all(map(_is_dense, trained)) else None,
    )
    # SGD creates its momentum at the first step, and the fused form only for all parameters at once: a
    # layer skipped in that step (stochastic depth) would break it. Zeros give the same first step.
    for parameter in trained:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _is_dense(parameter: Tensor) -> bool:
    """Whether the numbers lie side by side: the fused steps are wrong for others, such as slices."""
    last = parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last)
    return last or parameter.is_contiguous()


@contextmanager
def forgetting_norms(model: nn.Module) -> Iterator[None]:
    """Batch norms without a momentum get the usual one inside the block.

    They average over all batches since they were made: after a long training, those of a fine-tuning would
    hardly count, while the weights move.
    """
    averaging = [each for each in model.modules() if isinstance(each, _BatchNorm) and each.momentum is None]
    try:
        for norm in averaging:
            norm.momentum = USUAL_MOMENTUM
        yield
    finally:
        for norm in averaging:
            norm.momentum = None


def rate(schedule: str, peak: float, step: int, steps: int) -> float:
    """The learning rate of `step`, counted from 0, out of `steps`.

    constant: always `peak`. cosine: falls from `peak` along half a cosine to 0 after the last step.
    onecycle: rises linearly from a twentieth of `peak` over the first quarter of the steps, then falls like
    cosine. linear: rises over the first tenth of the steps, then falls, both linearly.

    >>> [round(rate("cosine", 0.1, step, 4), 4) for step in range(4)]
    [0.1, 0.0854, 0.05, 0.0146]
    """
    if schedule == "constant":
        return peak
    if schedule == "cosine":
        return peak * _half_cosine(step / steps)
    if schedule == "onecycle":
        rise = RISE * steps
        if step < rise:
            return peak * (START + (1 - START) * step / rise)
        return peak * _half_cosine((step - rise) / (steps - rise))
    if schedule == "linear":
        rise = max(1, round(WARM_UP * steps))
        return peak * ((step + 1) / rise if step < rise else (steps - step) / (steps - rise + 1))
    raise unknown("schedule", schedule, SCHEDULES)


def _half_cosine(progress: float) -> float:
    """1 at progress 0, 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))
