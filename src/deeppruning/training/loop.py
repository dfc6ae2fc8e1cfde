"""Train a network by SGD, reproducibly to the bit, and resume from a checkpoint.

>>> from deeppruning.data.images import ImageSet
>>> data = ImageSet(torch.zeros(8, 1, 4, 4), torch.zeros(8, dtype=torch.int64), ("a", "b"))
>>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
>>> [report.epoch for report in fit(model, data, TrainConfig(epochs=2, crop=0))]
[1, 2]
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from deeppruning.config import SCHEDULES, TrainConfig
from deeppruning.data.batches import Augment, Batches, leaves_one_image
from deeppruning.data.stream import Images, ImageStream
from deeppruning.errors import Diverged, InputError, unknown
from deeppruning.genome import derived_seed
from deeppruning.system.device import precision_of
from deeppruning.training.checkpoint import BatchReport, EpochReport, load_checkpoint, save_checkpoint
from deeppruning.training.distillation import Loss
from deeppruning.training.evaluate import check_outputs, evaluate, mode
from deeppruning.training.finite import check_learnt

# How often the loss is checked for overflow: each check makes a GPU wait until its queue is empty.
_CHECK_EVERY = 16


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
    there. `penalty`, a regulariser of the weights, is added to the loss of every batch. With `stop_after`,
    this call ends after that many further epochs. Raises Diverged if the loss or the weights overflow.
    """
    config = config.fitted(train.image_shape)
    device = torch.device(device)
    model.to(device)
    if teacher is not None:
        teacher.to(device)
    optimizer = make_optimizer(model, config, device)
    loss = Loss(config.label_smoothing, teacher, distill, temperature)
    job = _job(train, config, loss)
    history: list[EpochReport] = []
    if checkpoint is not None and checkpoint.exists():
        history = load_checkpoint(checkpoint, model, optimizer, job)
    runner = _Epoch(model, optimizer, loss, penalty, train, config, device, on_batch)
    with mode(teacher, training=False) if teacher is not None else nullcontext():
        last = config.epochs if stop_after is None else min(config.epochs, len(history) + stop_after)
        for epoch in range(len(history) + 1, last + 1):
            history.append(runner.run(epoch, test))
            if checkpoint is not None:
                save_checkpoint(checkpoint, model, optimizer, job, history)
            if on_epoch is not None:
                on_epoch(history[-1])
    return history


def _job(train: Images, config: TrainConfig, loss: Loss) -> dict[str, Any]:
    """Everything but the network that decides the result, as JSON types; a checkpoint belongs to one job."""
    data: dict[str, Any] = {
        "train_images": len(train),
        "image_shape": list(train.image_shape),
        "classes": list(train.classes),
    }
    if isinstance(train, ImageStream):
        data["data"] = train.identity
    distilled = loss.teacher is not None and loss.distill > 0.0
    distillation = {"distill": loss.distill, "temperature": loss.temperature} if distilled else {}
    return {**config.to_table(), **distillation, **data}


@dataclass
class _Epoch:
    """One epoch of training, and what stays the same from epoch to epoch."""

    model: nn.Module
    optimizer: torch.optim.SGD
    loss: Loss
    penalty: Callable[[nn.Module], Tensor] | None
    train: Images
    config: TrainConfig
    device: torch.device
    on_batch: Callable[[BatchReport], None] | None

    def run(self, epoch: int, test: Images | None) -> EpochReport:
        start = time.perf_counter()
        # Dropout draws from the global generator: seeded here, restored afterwards.
        with _forked_random_state(self.device), mode(self.model, training=True):
            torch.manual_seed(derived_seed(self.config.seed, epoch, "layers"))
            report = self._train(epoch, start)
        # No loss of this epoch shows its last step.
        check_learnt(self.model, f"the network after epoch {epoch} (learning rate {report.lr:g})")
        trained = time.perf_counter() - start
        test_error = None if test is None else evaluate(self.model, test, device=self.device).error
        return EpochReport(
            epoch=epoch,
            train_loss=report.train_loss,
            train_error=report.train_error,
            test_error=test_error,
            lr=report.lr,
            images_per_second=len(self.train) / trained,
            seconds=time.perf_counter() - start,
        )

    def _train(self, epoch: int, start: float) -> BatchReport:
        batches = self._batches(epoch)
        autocast = _autocast(self.device)
        losses = torch.zeros((), device=self.device)
        wrong = torch.zeros((), dtype=torch.int64, device=self.device)
        seen = 0
        for number, (images, labels) in enumerate(batches, start=1):
            step = (epoch - 1) * len(batches) + number - 1
            lr = rate(self.config.schedule, self.config.lr, step, self.config.epochs * len(batches))
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            with autocast:
                outputs = self.model(images)
                if number == 1:
                    check_outputs(outputs, len(labels), self.train.num_classes)
                loss = self.loss(images, outputs, labels)
                if self.penalty is not None:
                    loss = loss + self.penalty(self.model)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self.optimizer.step()
            losses += loss.detach().float() * len(labels)
            wrong += (outputs.detach().argmax(dim=1) != labels).sum()
            seen += len(labels)
            if number < len(batches) and self.on_batch is None and number % _CHECK_EVERY:
                continue
            train_loss, speed = float(losses) / seen, seen / (time.perf_counter() - start)
            if not math.isfinite(train_loss):
                raise Diverged(
                    f"training diverged in epoch {epoch}: the loss is {train_loss}; "
                    f"lower the learning rate (it was {lr:g}) or check the data for values out of range"
                )
            report = BatchReport(epoch, number, len(batches), train_loss, int(wrong) / seen, lr, speed)
            if self.on_batch is not None:
                self.on_batch(report)
        return report

    def _batches(self, epoch: int) -> Batches:
        config = self.config
        generator = torch.Generator().manual_seed(derived_seed(config.seed, epoch, "batches"))
        return Batches(
            self.train,
            config.batch_size,
            shuffle=True,
            augment=Augment(crop=config.crop or 0, flip=bool(config.flip), cutout=config.cutout),
            generator=generator,
            device=self.device,
            drop_last=leaves_one_image(len(self.train), config.batch_size),
            precision=precision_of(self.model),
        )


def _forked_random_state(device: torch.device) -> AbstractContextManager[None]:
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index if device.index is not None else 0
    return torch.random.fork_rng(devices=[index], device_type=device.type)


def _autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Mixed precision where it needs no loss scaling: bfloat16 on GPUs that support it."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()


# Share of a one-cycle run in which the rate rises, and the fraction of the peak it starts from.
RISE = 0.25
START = 0.05


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


def make_optimizer(model: nn.Module, config: TrainConfig, device: torch.device) -> SGD:
    """SGD for all parameters of a network that require gradients."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InputError("the model has no parameters to train; set requires_grad on some of them")
    optimizer = PlainSGD(
        trained,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=True if device.type in ("cpu", "cuda") else None,
    )
    # SGD creates its momentum at the first step, and the fused form only for all parameters at once: a
    # layer skipped in that step (stochastic depth) would break it. Zeros give the same first step.
    for parameter in trained:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def rate(schedule: str, peak: float, step: int, steps: int) -> float:
    """The learning rate of `step`, counted from 0, out of `steps`.

    constant: always `peak`. cosine: falls from `peak` along half a cosine to 0 after the last step.
    onecycle: rises linearly from a twentieth of `peak` over the first quarter of the steps, then falls like
    cosine.

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
    raise unknown("schedule", schedule, SCHEDULES)


def _half_cosine(progress: float) -> float:
    """1 at progress 0, 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))
