"""Images for quantisation: the search's sample to calibrate on, and test images to see what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deeppruning.config import USUAL_SAMPLE, SearchConfig
from deeppruning.data.batches import normalize
from deeppruning.data.convert import as_images
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample, has_balanced
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import Images, ImageStream, Pass
from deeppruning.errors import InputError
from deeppruning.jobs.classification import set_aside
from deeppruning.limits import Limits
from deeppruning.runs.folder import RunFolder
from deeppruning.system.user_code import make_importable

BATCH = 50
_GIVE_SOME = (
    "give some: --data on the command line, calibration=inputs (and test=images) in dp.export and dp.bench"
)


@dataclass(frozen=True, eq=False)
class Material:
    """What a network is quantised with: inputs to calibrate on, and test images where there are any."""

    calibration: ImageSet | Tensor
    test: Images | None = None

    def normalized(self, normalization: Normalization | None) -> Material:
        """The same images normalised as a network expects them; inputs that are given stay as they are."""
        if normalization is None:
            return self
        sets = [
            replace(each, normalization=normalization) if isinstance(each, Images) else each
            for each in (self.calibration, self.test)
        ]
        return Material(*sets)  # type: ignore[arg-type]

    def batches(self, *, pixels: bool) -> Iterator[Tensor]:
        """The calibration inputs as a file takes them, batch by batch."""
        if isinstance(self.calibration, ImageSet):
            yield from (images for images, _ in labelled(self.calibration, pixels=pixels))
        else:
            yield from torch.split(self.calibration.detach().cpu().float(), BATCH)


@dataclass(frozen=True)
class MaterialSource:
    """Where the material comes from: given in Python, named again, or as the run recorded it."""

    calibration: Any = None
    test: Any = None
    data: str | None = None  # in place of the data the run names
    data_dir: Path | None = None
    test_images: int | None = None  # fewer than all, as many of each class
    trust_run: bool = False

    def open(self, run_dir: str | Path) -> Material:
        """Read the images; InputError where there are none to be had."""
        if self.test_images is not None and self.test_images < 1:
            raise InputError(f"test images must be at least 1, got {self.test_images}")
        if self.calibration is not None:
            given = self.calibration
            inputs = given if isinstance(given, Tensor) else as_images(given).in_memory()
            if len(inputs) == 0:
                raise InputError("calibration holds no inputs; give at least one, better a few hundred")
            return Material(inputs, None if self.test is None else self._fewer(as_images(self.test)))
        with RunFolder.open(run_dir, read_only=True) as run:
            splits = self._reopened(run)
            test = splits.test if self.test is None else as_images(self.test)
            return Material(_sample(run, splits.train), self._fewer(test))

    def _reopened(self, run: RunFolder) -> DataSplits:
        recorded = run.config.get("data", {})
        if self.data is None and "data" not in recorded:
            raise InputError(
                f"int8 is calibrated on images, and {run.path} was started from Python, so its data is not "
                f"written down; {_GIVE_SOME}"
            )
        if self.data is None and not self.trust_run:
            run.refuse_foreign_code(["data"])
        if self.data is None and "code" in run.config:
            make_importable(Path(run.config["code"]["folder"]))
        folder = self.data_dir or (recorded.get("data_dir") if self.data is None else None)
        size = recorded.get("image_size")
        return load_data(
            self.data or recorded["data"], data_dir=folder, image_size=None if size is None else tuple(size)
        )

    def _fewer(self, test: Images) -> Images:
        wanted = self.test_images
        if wanted is None or wanted >= len(test):
            return test
        return _spread(test, wanted, seed=0)


def labelled(data: Images, *, pixels: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Images as a file takes them (pixels of 0..255, or normalised) with their labels, batch by batch."""
    places = list(torch.split(torch.arange(len(data)), BATCH))
    if isinstance(data, ImageStream):
        found = data.batches(places, Pass())
    else:
        found = ((data.images[part], data.labels[part]) for part in places)
    for images, labels in found:
        ready = images.float() if pixels else normalize(images, data.normalization)
        yield ready.contiguous(), labels


def _sample(run: RunFolder, train: Images) -> ImageSet:
    """The images that the search judged its candidates on, as far as this data has them."""
    search = SearchConfig.from_table(run.config["search"])
    trained_on, _ = set_aside(train, Limits.of(run.config.get("target")), search.seed)
    return _spread(trained_on, min(search.sample or USUAL_SAMPLE, len(trained_on)), search.seed)


def _spread(data: Images, size: int, seed: int) -> ImageSet:
    """So many images, read into memory, as many of each class where there are enough of each."""
    if has_balanced(data, size, seed):
        return balanced_sample(data, size, seed)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    return data.subset(order[:size].sort().values).in_memory()
