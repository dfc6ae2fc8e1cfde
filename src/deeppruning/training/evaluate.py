"""Measure a network on labelled images, and re-estimate its batch-norm statistics on them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from deeppruning.data.batches import Augment, Batches
from deeppruning.data.stream import Images
from deeppruning.errors import InputError
from deeppruning.system.device import precision_of
from deeppruning.training.finite import check_learnt, check_outputs_finite


@dataclass(frozen=True)
class Performance:
    """How a network does on a data set: share of wrong answers, mean cross-entropy, speed."""

    error: float
    loss: float
    images_per_second: float
    count: int


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode for a while; each module's own mode comes back."""
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
    batch_size: int = 250,
    device: str | torch.device = "cpu",
    augment: Augment | None = None,
) -> Performance:
    """Error and loss of `model`, in evaluation mode, on every image of `data`, augmented if asked for.

    The model is moved to `device` and stays there; its mode is as before afterwards. Raises Diverged
    where an output is not finite: there is no answer to count as right or wrong.
    """
    model.to(device)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    # Single precision is enough for one batch's loss, and not every device has double: sum on the host.
    loss = 0.0
    start = time.perf_counter()
    with mode(model, training=False), torch.inference_mode():
        precision = precision_of(model)
        for images, labels in Batches(data, batch_size, augment=augment, device=device, precision=precision):
            outputs = model(images)
            check_outputs(outputs, len(labels), data.num_classes)
            check_outputs_finite(outputs)
            wrong += (outputs.argmax(dim=1) != labels).sum()
            loss += F.cross_entropy(outputs.float(), labels, reduction="sum").item()
    seconds = time.perf_counter() - start
    count = len(data)
    return Performance(int(wrong) / count, loss / count, count / seconds, count)


def outputs_on(
    model: nn.Module, data: Images, *, batch_size: int = 250, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """(images, classes): what a network answers to every image, in evaluation mode, on the host.

    The model is moved to `device` and stays there. Raises Diverged where an output is not finite.
    """
    model.to(device)
    found = []
    with mode(model, training=False), torch.inference_mode():
        for images, labels in Batches(data, batch_size, device=device, precision=precision_of(model)):
            outputs = model(images)
            check_outputs(outputs, len(labels), data.num_classes)
            check_outputs_finite(outputs)
            found.append(outputs.float().cpu())
    return torch.cat(found)


def check_outputs(outputs: object, batch: int, classes: int) -> None:
    """Refuse outputs that are not one score for each class of the data (more are let pass)."""
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
    """Replace running mean and variance of every batch norm by those of `data`; weights stay.

    All batches count alike (cumulative average). Only the batch norms run in training mode, so that
    dropout stays off. A model without batch norms, or with such as keep no statistics, is left alone.
    Raises Diverged where weights or new statistics are not finite.
    """
    model.to(device)
    norms = [
        module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats
    ]
    if not norms:
        check_learnt(model, "the network")
        return
    momenta = [norm.momentum for norm in norms]
    # A last batch of one image would give a variance of one value; it weighs nothing among the rest.
    lone = len(data) > batch_size and len(data) % batch_size == 1
    try:
        with mode(model, training=False), torch.no_grad():
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
                norm.train()
            precision = precision_of(model)
            for images, _ in Batches(data, batch_size, device=device, drop_last=lone, precision=precision):
                model(images)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    check_learnt(model, "the recalibrated network")
