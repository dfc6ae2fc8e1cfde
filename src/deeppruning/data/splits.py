"""A data set in two parts, for training and testing, with the same classes and image shape.

>>> data = ImageSet(torch.zeros(10, 1, 2, 2), torch.arange(10) % 2, ("a", "b"))
>>> train, test = stratified_split(data, test_share=0.2, seed=0)
>>> len(train), test.labels.bincount().tolist()
(8, [1, 1])
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import TypeVar

import torch
from torch.nn.functional import interpolate

from deeppruning.amounts import listed
from deeppruning.data.convert import resized
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.stream import Images, ImageStream
from deeppruning.data.unpacking import LARGEST
from deeppruning.errors import DataError, InputError

AnyImages = TypeVar("AnyImages", ImageSet, ImageStream)


@dataclass(frozen=True)
class DataSplits:
    """The training and test images of a data set."""

    name: str
    train: Images
    test: Images

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise DataError(f"data set {self.name!r} has no training images; give at least one")
        try:
            check_pixels(self.train, "training")
            check_fits(self.train, self.test)
        except DataError as error:
            raise DataError(f"data set {self.name!r}: {error}") from None

    def with_normalization(self, normalization: Normalization | None) -> "DataSplits":
        """The same images with another normalisation in both parts."""
        return replace(
            self,
            train=replace(self.train, normalization=normalization),
            test=replace(self.test, normalization=normalization),
        )

    def resized(self, height: int, width: int) -> "DataSplits":
        """The same data with every image at this size; not copied if they have it already."""
        return replace(
            self,
            train=_resize_images(self.train, height, width),
            test=_resize_images(self.test, height, width),
        )


def check_fits(train: Images, test: Images) -> None:
    """Refuse test images that are missing or do not fit the training images."""
    if len(test) == 0:
        raise DataError("there are no test images; give at least one")
    if train.classes != test.classes:
        raise DataError(
            "training and test images must have the same classes, got "
            f"{train.num_classes} ({listed(train.classes, 5)}) and "
            f"{test.num_classes} ({listed(test.classes, 5)})"
        )
    if train.image_shape != test.image_shape:
        raise DataError(
            f"training and test images must have the same shape, got {train.image_shape} and "
            f"{test.image_shape}; give an image size to resize both"
        )
    if (train.dtype == torch.uint8) != (test.dtype == torch.uint8):
        raise DataError(
            "training and test images must be of the same type, both uint8 or both normalised floats, got "
            f"{train.dtype} and {test.dtype}"
        )
    check_pixels(test, "test")


def check_pixels(data: Images, part: str) -> None:
    """Refuse images with values that are not finite; those of a stream are checked when they are read."""
    if isinstance(data, ImageStream):
        return
    if data.images.is_floating_point() and not bool(torch.isfinite(data.images).all()):
        raise DataError(f"{part} images hold values that are not finite (nan or inf); remove or replace them")


def stratified_split(data: AnyImages, test_share: float = 0.2, seed: int = 0) -> tuple[AnyImages, AnyImages]:
    """Split the images at random, every class in the same proportion, at least one per class on each side.

    The test part holds `test_share` of all images, rounded up; the remainder goes to the classes that lost
    most by rounding down. The order within each part is that of `data`.
    """
    if not 0.0 < test_share < 1.0:
        raise InputError(f"test_share must lie between 0 and 1, got {test_share}")
    counts = torch.bincount(data.labels, minlength=data.num_classes).tolist()
    for name, count in zip(data.classes, counts, strict=True):
        if count < 2:
            raise DataError(
                f"class {name!r} has {count} image(s), and a split needs at least 2: one to train on, one to "
                "test on; add images or give separate training and test parts"
            )
    shares = [round(count * test_share, 9) for count in counts]
    tested = [int(share) for share in shares]
    left = ceil(round(len(data) * test_share, 9)) - sum(tested)
    by_loss = sorted(range(len(shares)), key=lambda index: tested[index] - shares[index])
    for index in by_loss[:left]:
        tested[index] += 1
    generator = torch.Generator().manual_seed(seed)
    in_test = torch.zeros(len(data), dtype=torch.bool)
    for index, count in enumerate(counts):
        members = (data.labels == index).nonzero().flatten()
        order = torch.randperm(count, generator=generator)
        in_test[members[order[: min(max(tested[index], 1), count - 1)]]] = True
    return data.subset((~in_test).nonzero().flatten()), data.subset(in_test.nonzero().flatten())


def _resize_images(data: Images, height: int, width: int) -> Images:
    if isinstance(data, ImageStream):
        return resized(data, height, width)
    if data.image_shape[1:] == (height, width):
        return data
    needed = len(data) * data.image_shape[0] * height * width * data.images.element_size()
    if needed > LARGEST:
        raise DataError(
            f"{len(data)} images of {width}x{height} pixels take {needed / 2**30:.0f} GiB of memory; "
            "give a smaller image size"
        )
    parts = [
        interpolate(part, size=(height, width), mode="bilinear", antialias=True)
        for part in torch.split(data.images, 1000)
    ]
    return replace(data, images=torch.cat(parts))
