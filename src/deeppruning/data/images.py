"""Labelled images as two tensors: the one form in which data travels through the package.

>>> data = ImageSet(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]), ("a", "b"))
>>> len(data), data.image_shape, data.num_classes
(4, (1, 8, 8), 2)
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deeppruning.errors import DataError


@dataclass(frozen=True)
class Normalization:
    """Per-channel mean and deviation on the scale 0..1, subtracted and divided before the network."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class ImageSet:
    """Images (N, C, H, W), uint8 or already-normalised float, with one class index each.

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
        if self.labels.shape != (len(self.images),):
            raise DataError(f"{len(self.images)} images need as many labels, got {tuple(self.labels.shape)}")
        if self.labels.dtype != torch.int64:
            raise DataError(f"labels must be int64 class indices, got {self.labels.dtype}")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise DataError(
                f"labels must lie in 0..{len(self.classes) - 1} for {len(self.classes)} classes, "
                f"got {int(self.labels.min())}..{int(self.labels.max())}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_classes(self) -> int:
        """How many classes there are, also when some have no image here."""
        return len(self.classes)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def subset(self, indices: Tensor) -> "ImageSet":
        """The images at these indices, in this order."""
        return replace(self, images=self.images[indices], labels=self.labels[indices])
