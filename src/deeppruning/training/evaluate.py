"""Measure a network on labelled images, compare it with guessing, and recalibrate its batch norms."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.amounts import percent
from deeppruning.data.batches import Augment, Batches, leaves_one_image
from deeppruning.data.stream import Images
from deeppruning.errors import Diverged, InputError
from deeppruning.system.device import inputs_at_once, precision_of
from deeppruning.system.memory_format import memory_format_for
from deeppruning.training.finite import check_learnt, check_outputs_finite

SURE = 0.01  # the significance level at which guessing is ruled out
TIMED_IMAGES = 512  # by which the time of a whole test is estimated
HARDLY = 0.9  # of the error of guessing: a network above it was not trained, or gets the wrong input


@dataclass(frozen=True)
class Performance:
    """Error (share of wrong predictions), mean cross-entropy and speed of a network on a data set."""

    error: float
    loss: float
    images_per_second: float
    count: int


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put the model in training or evaluation mode inside the block; each module's mode is restored."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training


def evaluate(
    model: nn.Module,
    data: Images,
    *,
    batch_size: int | None = None,
    device: str | torch.device = "cpu",
    augment: Augment | None = None,
) -> Performance:
    """Error and loss of `model` in evaluation mode on every image of `data`.

    Without a batch size, as many images run at once as run fast and do not need much memory.

    The model is moved to `device` and stays there; its mode is restored. Raises Diverged if an output is not
    finite.
    """
    model.to(device)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    # Summed on the host, because not every device has double precision.
    loss = 0.0
    start = time.perf_counter()
    with mode(model, training=False), torch.inference_mode():
        for images, labels in _batches(model, data, device, augment, batch_size):
            outputs = model(images)
            check_outputs(outputs, len(labels), data.num_classes)
            check_outputs_finite(outputs)
            wrong += (outputs.argmax(dim=1) != labels).sum()
            loss += F.cross_entropy(outputs.float(), labels, reduction="sum").item()
    seconds = time.perf_counter() - start
    count = len(data)
    return Performance(int(wrong) / count, loss / count, count / seconds, count)


def seconds_of_test(model: nn.Module, data: Images, device: str | torch.device) -> float:
    """About how long `evaluate` takes, by some images; 0 if its outputs are not finite."""
    some = data.subset(torch.arange(min(len(data), TIMED_IMAGES)))
    with suppress(Diverged):
        return len(data) / evaluate(model, some, device=device).images_per_second
    return 0.0


def outputs_on(model: nn.Module, data: Images, *, device: str | torch.device = "cpu") -> torch.Tensor:
    """The outputs (images, classes) of a network in evaluation mode for every image, on the CPU.

    The model is moved to `device` and stays there. Raises Diverged if an output is not finite.
    """
    model.to(device)
    batches = []
    with mode(model, training=False), torch.inference_mode():
        for images, labels in _batches(model, data, device):
            outputs = model(images)
            check_outputs(outputs, len(labels), data.num_classes)
            check_outputs_finite(outputs)
            batches.append(outputs.float().cpu())
    return torch.cat(batches)


def _batches(
    model: nn.Module,
    data: Images,
    device: str | torch.device,
    augment: Augment | None = None,
    batch_size: int | None = None,
) -> Batches:
    """All images in their order, in the precision of the network."""
    precision = precision_of(model)
    at_once = batch_size or inputs_at_once(math.prod(data.image_shape) * precision.itemsize, device)
    memory_format = image_format_for(model, data.image_shape, device)
    return Batches(
        data, at_once, augment=augment, device=device, precision=precision, memory_format=memory_format
    )


def image_format_for(
    model: nn.Module, image_shape: tuple[int, int, int], device: str | torch.device
) -> torch.memory_format:
    """How images lie in memory for a network, which is on the device."""
    if image_shape[0] == 1:  # either format is the other
        return torch.channels_last
    some = torch.zeros(2, *image_shape, dtype=precision_of(model), device=device)
    with mode(model, training=False), torch.random.fork_rng(devices=[]):
        return memory_format_for(model, (some,))


def check_outputs(outputs: object, batch: int, classes: int) -> None:
    """Refuse outputs that are not one score for each class of the data; more scores are allowed."""
    if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2 or len(outputs) != batch:
        given = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise InputError(
            f"the model must return class scores of shape ({batch}, classes), got {given}; a network with "
            "other outputs is pruned by dp.search, which looks at no labels, or with a task of your own"
        )
    if outputs.shape[1] < classes:
        raise InputError(
            f"the model has {outputs.shape[1]} outputs but the data has {classes} classes; "
            f"build it with num_classes={classes}"
        )


def recalibrate(
    model: nn.Module, data: Images, *, batch_size: int = 250, device: str | torch.device = "cpu"
) -> None:
    """Replace the running mean and variance of every batch norm by those of `data`.

    All batches have the same weight (cumulative average). Only the batch norms run in training mode, so
    dropout stays off. A model without running statistics is not changed. Raises Diverged if weights or new
    statistics are not finite.
    """
    model.to(device)
    norms = [
        module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats
    ]
    if not norms:
        check_learnt(model, "the network")
        return
    momenta = [norm.momentum for norm in norms]
    memory_format = image_format_for(model, data.image_shape, device)
    lone = leaves_one_image(len(data), batch_size)
    try:
        with mode(model, training=False), torch.no_grad():
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
                norm.train()
            precision = precision_of(model)
            for images, _ in Batches(
                data,
                batch_size,
                device=device,
                drop_last=lone,
                precision=precision,
                memory_format=memory_format,
            ):
                model(images)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    check_learnt(model, "the recalibrated network")


def is_guessing(error: float, labels: Tensor) -> bool:
    """Whether always predicting the most common class could do as well on images with these labels.

    A one-sided binomial test: the probability that guesses get at least as many right.

    >>> labels = torch.arange(360) % 10
    >>> is_guessing(0.8944, labels), is_guessing(0.5, labels)
    (True, False)
    """
    images = len(labels)
    share = 1.0 - guessing_error(labels)
    right = images - round(error * images)
    if right == images:
        return False
    if right <= images * share:
        return True
    log_odds = math.log(share) - math.log1p(-share)
    tail = 0.0
    for count in range(right, images + 1):
        ways = math.lgamma(images + 1) - math.lgamma(count + 1) - math.lgamma(images - count + 1)
        term = math.exp(ways + count * log_odds + images * math.log1p(-share))
        tail += term
        if term < SURE * 1e-6:  # beyond the mean the terms only fall
            break
    return tail >= SURE


def guessing_error(labels: Tensor) -> float:
    """The error of always predicting the most common class.

    >>> guessing_error(torch.tensor([0, 1, 1, 1]))
    0.25
    """
    return 1.0 - int(torch.bincount(labels).max()) / len(labels)


def guessing_note(error: float, labels: Tensor, images: str) -> str:
    """A warning for a network that is hardly better than guessing; else an empty text.

    `images` describes the images, as in "test images".
    """
    if not len(labels):
        return ""
    guessed = guessing_error(labels)
    # Where most images are of one class, a small improvement may be a large one.
    hardly = error > max(HARDLY * guessed, 0.5)
    if not (guessing := is_guessing(error, labels)) and not hardly:
        return ""
    return (
        f"WARNING: the network is {'no' if guessing else 'hardly'} better than guessing: its error on "
        f"{len(labels):,} {images} is {percent(error)}, and always predicting the most common class has "
        f"{percent(guessed)}. Check that the images have the size (--image-size) and the normalisation "
        "(--mean, --std) it was trained with, that these are its trained weights, and that the classes are "
        "in the same order."
    )
