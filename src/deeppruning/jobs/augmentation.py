"""Which augmentation suits the original: found out by looking, before networks are fine-tuned with it.

Fine-tuning follows the original's answers. Where those are wrong for images that are shifted or mirrored,
because it never saw such, following them makes a network worse.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from deeppruning.config import TrainConfig
from deeppruning.data.batches import Augment
from deeppruning.errors import Diverged
from deeppruning.jobs.identity import original
from deeppruning.runs import facts
from deeppruning.runs.folder import RunFolder
from deeppruning.searching.events import Remark
from deeppruning.searching.task import Classification
from deeppruning.system.device import device_or_cpu, torch_threads
from deeppruning.training.evaluate import evaluate

if TYPE_CHECKING:
    from deeppruning.jobs.job import Job

IMAGES = 500  # that are looked at, at most: a small part of an epoch
PLAIN = "plain"
MORE_ERROR = 0.05  # a network that was trained with an augmentation loses less by it
SURE = 3.0  # standard errors beyond which a difference is none of chance


def with_fitting_augmentation(job: Job, run: RunFolder) -> Job:
    """The job without augmentation that nobody asked for and that the original errs on clearly more.

    One that was asked for stays, as does all of the paper's; the run is told. What was seen is kept in the
    run, and decides when it goes on.
    """
    task = job.task
    if not isinstance(task, Classification) or task.tuning is None or task.train is None:
        return job
    if not task.rounds or task.tuning.from_scratch:  # nothing is learnt from the original's weights
        return job
    wanted = _augmentations(task.tuning.fitted(task.train.image_shape))
    known = run.history.get_fact(facts.AUGMENTATION)
    errors = dict(known["errors"]) if known is not None else {}
    images = known["images"] if known is not None else min(IMAGES, len(task.train))
    unseen = {name: one for name, one in wanted.items() if name not in errors}
    if unseen:
        errors |= _look(job, task, images, unseen if PLAIN in errors else {PLAIN: Augment(), **unseen})
    bad = [name for name in wanted if _is_worse(errors[PLAIN], errors[name], images)]
    fields = [name.partition("=")[0] for name in bad]
    left_out: dict[str, Any] = {
        field: 0 if field == "crop" else False
        for field in fields
        if task.keeps_best and getattr(task.tuning, field) is None
    }
    note = _note(bad, left_out, errors, images)
    if unseen:
        # The note is that of the run's own options, whatever a candidate is fine-tuned by later on.
        told = note if known is None else known["note"]
        seen: facts.AugmentationFigures = {"images": images, "errors": errors, "note": told}
        run.history.set_fact(facts.AUGMENTATION, seen)
    if note:
        job.observer(Remark("augmentation", note))
    return replace(job, task=replace(task, tuning=replace(task.tuning, **left_out)))


def _augmentations(tuning: TrainConfig) -> dict[str, Augment]:
    found: dict[str, Augment] = {}
    for field in ("crop", "flip", "cutout"):
        value: Any = getattr(tuning, field)
        if value:
            name = field if value is True else f"{field}={value}"
            found[name] = Augment(**{field: value})
    return found


def _look(job: Job, task: Classification, images: int, wanted: dict[str, Augment]) -> dict[str, float]:
    """The original's error on some training images, changed in each way."""
    assert task.train is not None
    generator = torch.Generator().manual_seed(job.search.seed)
    some = task.train.subset(torch.randperm(len(task.train), generator=generator)[:images].sort().values)
    model, device = original(job.context), device_or_cpu(task.device)
    errors = {}
    with torch_threads(job.search.threads):
        for name, augment in wanted.items():
            try:
                errors[name] = evaluate(model, some, device=device, augment=augment).error
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


def _note(bad: list[str], left_out: dict[str, Any], errors: dict[str, float], images: int) -> str:
    if not bad:
        return ""
    told = ", ".join(f"{100 * errors[name]:.2f} % with {name}" for name in bad)
    out = [name for name in bad if name.partition("=")[0] in left_out]
    kept = [name for name in bad if name not in out]
    parts = [f"fine-tuning leaves out {' and '.join(out)}"] if out else []
    advice = ", ".join("--no-flip" if name == "flip" else f"--{name.partition('=')[0]} 0" for name in kept)
    parts += [f"{' and '.join(kept)} may make networks worse: {advice} leaves that out"] if kept else []
    return (
        f"the original errs on {100 * errors[PLAIN]:.2f} % of {images} training images as they are, but on "
        f"{told}: it was not trained so; {'; '.join(parts)}"
    )
