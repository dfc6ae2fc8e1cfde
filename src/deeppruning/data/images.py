"""Labelled images in memory, as two tensors, and their normalisation.

>>> data = ImageSet(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b"))
>>> len(data), data.image_shape, data.num_classes
(4, (1, 8, 8), 2)
"""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from deeppruning.errors import DataError, InputError


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation per channel, for images scaled to 0..1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise InputError(
                f"a normalisation needs one mean and one standard deviation per channel, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        if not all(isfinite(mean) for mean in self.mean):
            raise InputError(f"the means of a normalisation must be finite, got {self.mean}")
        if not all(isfinite(std) and std > 0 for std in self.std):
            raise InputError(f"the standard deviations of a normalisation must be above 0, got {self.std}")


@dataclass(frozen=True)
class ImageSet:
    """Images (N, C, H, W) with one class index each.

    uint8 images are scaled to 0..1 and normalised batch by batch; float images are used as they are.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    normalization: Normalization | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4:
            raise DataError(f"images must have shape (N, C, H, W), got {tuple(self.images.shape)}")
        if self.images.dtype != torch.uint8 and not self.images.is_floating_point():
            raise DataError(f"images must be uint8 or floating point, got {self.images.dtype}")
        check_labels(self.labels, len(self.images), self.classes)
        channels = len(self.normalization.mean) if self.normalization else self.images.shape[1]
        if channels not in (1, self.images.shape[1]):
            raise DataError(f"images of {self.images.shape[1]} channels cannot be normalised with {channels}")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_classes(self) -> int:
        """The number of classes, including those without an image here."""
        return len(self.classes)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def dtype(self) -> torch.dtype:
        """uint8, or a floating point type for images that are normalised already."""
        return self.images.dtype

    def in_memory(self) -> "ImageSet":
        """This set, which is in memory already."""
        return self

    def measure(self) -> Normalization | None:
        """The normalisation of uint8 images, measured on all of them; None for float images."""
        return normalization_of(count_levels(self.images)) if self.dtype == torch.uint8 else None

    def key_tensors(self) -> dict[str, Tensor]:
        """Tensors that differ from those of any other data."""
        return {"images": self.images, "labels": self.labels}

    def subset(self, indices: Tensor) -> "ImageSet":
        """The images at these indices, in this order."""
        return replace(self, images=self.images[indices], labels=self.labels[indices])


def check_labels(labels: Tensor, images: int, classes: tuple[str, ...]) -> None:
    """Refuse labels that are not one class index for each image."""
    if labels.shape != (images,):
        raise DataError(f"{images} images need as many labels, got {tuple(labels.shape)}")
    if labels.dtype != torch.int64:
        raise DataError(f"labels must be int64 class indices, got {labels.dtype}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        allowed = f"lie in 0..{len(classes) - 1} for {len(classes)} classes"
        allowed = allowed if len(classes) > 1 else "all be 0 if there is one class"
        raise DataError(f"labels must {allowed}, got {int(labels.min())}..{int(labels.max())}")


def count_levels(images: Tensor) -> Tensor:
    """How often each pixel value occurs, (channels, 256); needs no float copy of the images."""
    return torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)])


def normalization_of(counts: Tensor) -> Normalization:
    """Mean and standard deviation, to 4 digits, of pixel values that occur this often.

    >>> normalization_of(count_levels(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)))
    Normalization(mean=(0.5,), std=(0.5,))
    """
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, deviations = [], []
    for channel in counts:
        share = channel.double() / max(1, int(channel.sum()))
        mean = float((share * levels).sum())
        means.append(round(mean, 4))
        deviation = float((share * (levels - mean) ** 2).sum().sqrt())
        deviations.append(round(deviation, 4) or 1.0)  # a constant channel must not divide by 0
    return Normalization(tuple(means), tuple(deviations))
