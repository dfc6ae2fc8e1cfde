"""Labelled images as a classification task: checked, sampled, some held out, the augmentation chosen.

Distillation trains a network to reproduce the original's outputs. If the original was not trained on shifted
or mirrored images, its outputs for them may be wrong: then this augmentation is left out.
"""

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from deeppruning.amounts import percent
from deeppruning.config import USUAL_SAMPLE, FinetuneConfig, SearchConfig, TrainConfig
from deeppruning.data.batches import Augment
from deeppruning.data.convert import as_images
from deeppruning.data.sample import (
    SHARE_ASIDE,
    balanced_indices,
    has_balanced,
    hold_out,
    indices_aside,
    most_balanced,
    smallest_class,
)
from deeppruning.data.splits import check_fits, check_pixels
from deeppruning.data.stream import Images, ImageStream
from deeppruning.errors import DataError, Diverged, InputError
from deeppruning.limits import Limits
from deeppruning.runs import History, facts
from deeppruning.searching.task import Classification
from deeppruning.system.device import device_or_cpu, precision_of, torch_threads
from deeppruning.training.evaluate import check_outputs, evaluate

AUGMENTATION_IMAGES = 500  # evaluated at most: a small part of an epoch
PLAIN = "plain"
MORE_ERROR = 0.05  # a network that was trained with an augmentation loses less than this by it
SURE = 3.0  # standard errors beyond which a difference is not due to chance


def classification(
    model: nn.Module,
    train: Any,
    test: Any,
    search: SearchConfig,
    finetune: FinetuneConfig,
    target: Limits,
    device: str,
) -> tuple[Classification, str]:
    """The task, with the sample's size settled in its search options, and a note if that size is small."""
    if train is None:
        raise InputError("training data is needed: pass train, or a task of your own with example_input")
    train, test = _image_sets(train, test)
    _check_labels(model, train, test)
    identity = train.identity if isinstance(train, ImageStream) else ""
    train, validation = set_aside(train, target, search.seed)
    search, note = settle_sample(search, train)
    size = min(search.sample or USUAL_SAMPLE, len(train))
    sampled = balanced_indices(train, size, search.seed)
    task = Classification(
        sample=train.subset(sampled).in_memory(),
        search=search,
        device=device,
        train=train,
        test=test,
        validation=validation,
        tuning=finetune,
        teacher=model,
        identity=identity,
    )
    if validation is None and task.keeps_best and task.rounds:
        task = _with_images_aside(task, train, sampled)
    return task, note


def example_image(model: nn.Module, images: Images) -> torch.Tensor:
    """A blank image of the set's shape, in the network's precision."""
    return torch.zeros(1, *images.image_shape, dtype=precision_of(model))


def set_aside(train: Images, target: Limits, seed: int) -> tuple[Images, Images | None]:
    """The images to train on, and those that a limit on the error is checked on, if there is one."""
    return hold_out(train, SHARE_ASIDE, seed) if target.bounds_error else (train, None)


def settle_sample(search: SearchConfig, train: Images) -> tuple[SearchConfig, str]:
    """The options with a sample size, and a note where it is below the default.

    >>> from deeppruning.data.images import ImageSet
    >>> data = ImageSet(torch.zeros(70, 1, 2, 2), torch.arange(70).clamp(max=50) // 50, ("a", "b"))
    >>> settle_sample(SearchConfig(), data)[1]
    "the sample has 40 images, 20 of each class: the smallest class, 'b', has no more"
    """
    if search.sample is not None:
        return search, ""
    most = most_balanced(train)
    if most == 0 or has_balanced(train, min(USUAL_SAMPLE, len(train)), search.seed):
        return replace(search, sample=USUAL_SAMPLE), ""
    note = (
        f"the sample has {most} images, {most // train.num_classes} of each class: the smallest class, "
        f"{smallest_class(train)!r}, has no more"
    )
    return replace(search, sample=most), note


def _with_images_aside(task: Classification, train: Images, sampled: torch.Tensor) -> Classification:
    """The same task with some images neither trained nor refitted on: they show whether fine-tuning helps."""
    aside = indices_aside(train, sampled, task.search.seed)
    if not len(aside):
        return task
    rest = torch.ones(len(train), dtype=torch.bool)
    rest[aside] = False
    return replace(
        task,
        train=train.subset(rest.nonzero().flatten()),
        validation=train.subset(aside),
        refitted=task.sample.subset(rest[sampled].nonzero().flatten()),
    )


def _image_sets(train: Any, test: Any) -> tuple[Images, Images | None]:
    """Both sets in one form; integer pixels without a normalisation get that of the training set."""
    images = _read_image_set(train, "train")
    if len(images) == 0:
        raise DataError("there are no training images; give at least one per class")
    check_pixels(images, "training")
    if images.normalization is None:
        images = replace(images, normalization=images.measure())
    if test is None:
        return images, None
    held_out = _read_image_set(test, "test")
    # Class names that are only numbers stand for labels without names: there is nothing to mix up.
    if not all(_has_class_names(data) for data in (images, held_out)):
        classes = max((images, held_out), key=lambda data: (_has_class_names(data), data.num_classes)).classes
        images, held_out = replace(images, classes=classes), replace(held_out, classes=classes)
    check_fits(images, held_out)
    return images, replace(held_out, normalization=held_out.normalization or images.normalization)


def _read_image_set(data: Any, name: str) -> Images:
    try:
        return as_images(data)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def _has_class_names(data: Images) -> bool:
    return not all(name.isdigit() for name in data.classes)


def _check_labels(model: nn.Module, train: Images, test: Images | None) -> None:
    """Refuse labels that the network has no output for, and outputs that are not class scores."""
    example = example_image(model, train).to(next(model.parameters(), torch.empty(0)).device)
    try:
        with torch.random.fork_rng(), torch.no_grad():
            outputs = copy.deepcopy(model).eval()(example)
    except Exception:  # whatever the user's code raises: the channel graph reports it, with what to do
        return
    check_outputs(outputs, 1, 0)
    for part, data in {"training": train, "test": test}.items():
        worst = 0 if data is None else int(data.labels.argmax())
        if data is not None and int(data.labels[worst]) >= outputs.shape[1]:
            raise DataError(
                f"the model has {outputs.shape[1]} outputs but the data has {data.num_classes} classes: "
                f"{part} image {worst} has label {int(data.labels[worst])}; correct the labels, which "
                f"count from 0, or build it with num_classes={data.num_classes}"
            )


@dataclass(frozen=True, eq=False)
class Augmentation:
    """The original's errors on augmented images, which the run keeps, and what follows for this job."""

    figures: facts.AugmentationFigures
    note: str


def fit_augmentation(
    task: Classification, original: nn.Module, history: History | None
) -> tuple[Classification, Augmentation | None]:
    """The task without default augmentation on which the original has a clearly higher error.

    An augmentation that the user chose is kept, as is everything in the paper's fine-tuning. The errors that
    a run has recorded decide when it is resumed.
    """
    if task.tuning is None or task.train is None or not task.rounds or task.tuning.from_scratch:
        return task, None  # nothing is fine-tuned from the original's weights
    augmentations = _augmentations_of(task.tuning.fitted(task.train.image_shape))
    recorded = None if history is None else history.get_fact(facts.AUGMENTATION)
    errors = dict(recorded["errors"]) if recorded is not None else {}
    images = recorded["images"] if recorded is not None else min(AUGMENTATION_IMAGES, len(task.train))
    missing = {name: augment for name, augment in augmentations.items() if name not in errors}
    if missing:
        plain = {} if PLAIN in errors else {PLAIN: Augment()}
        errors |= _augmented_errors(task, original, images, {**plain, **missing})
    harmful = [name for name in augmentations if _is_worse(errors[PLAIN], errors[name], images)]
    left_out: dict[str, Any] = {
        field: 0 if field == "crop" else False
        for field in (name.partition("=")[0] for name in harmful)
        if task.keeps_best and getattr(task.tuning, field) is None
    }
    note = _note_on_augmentation(harmful, left_out, errors, images)
    if recorded is None and not missing:
        return task, None
    # The note of the record is that of the run's own options, whatever a candidate is fine-tuned by later.
    first = note if recorded is None else recorded["note"]
    figures: facts.AugmentationFigures = {"images": images, "errors": errors, "note": first}
    return replace(task, tuning=replace(task.tuning, **left_out)), Augmentation(figures, note)


def _augmentations_of(tuning: TrainConfig) -> dict[str, Augment]:
    """Each augmentation of a training alone, by its name."""
    values: dict[str, Any] = {name: getattr(tuning, name) for name in ("crop", "flip", "cutout")}
    return {
        name if value is True else f"{name}={value}": Augment(**{name: value})
        for name, value in values.items()
        if value
    }


def _augmented_errors(
    task: Classification, original: nn.Module, images: int, augmentations: dict[str, Augment]
) -> dict[str, float]:
    """The original's error on some training images, by augmentation."""
    assert task.train is not None
    generator = torch.Generator().manual_seed(task.search.seed)
    chosen = torch.randperm(len(task.train), generator=generator)[:images].sort().values
    data, device = task.train.subset(chosen), device_or_cpu(task.device)
    errors = {}
    with torch_threads(task.search.threads):
        for name, augment in augmentations.items():
            try:
                errors[name] = evaluate(original, data, device=device, augment=augment).error
            except Diverged:  # outputs that are not finite
                errors[name] = 1.0
    return errors


def _is_worse(plain: float, changed: float, images: int) -> bool:
    """Whether an error is clearly higher: by some points, and by more than chance.

    >>> _is_worse(0.02, 0.14, 500), _is_worse(0.05, 0.07, 500), _is_worse(0.0, 0.1, 20)
    (True, False, False)
    """
    variance = (plain * (1.0 - plain) + changed * (1.0 - changed)) / images
    return changed - plain > max(MORE_ERROR, SURE * math.sqrt(variance))


def _note_on_augmentation(
    harmful: list[str], left_out: dict[str, Any], errors: dict[str, float], images: int
) -> str:
    """What the original's errors on augmented images mean for fine-tuning, in words."""
    if not harmful:
        return ""
    shown = ", ".join(f"{percent(errors[name])} with {name}" for name in harmful)
    out = [name for name in harmful if name.partition("=")[0] in left_out]
    stay = [name for name in harmful if name not in out]
    parts = [f"fine-tuning leaves out {' and '.join(out)}"] if out else []
    flags = ", ".join("--no-flip" if name == "flip" else f"--{name.partition('=')[0]} 0" for name in stay)
    parts += [f"{' and '.join(stay)} may make networks worse: {flags} leaves that out"] if stay else []
    return (
        f"the original's error is {percent(errors[PLAIN])} on {images} training images, but {shown}: it "
        f"was not trained with that; {'; '.join(parts)}"
    )
