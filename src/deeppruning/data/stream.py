"""Labelled images that are read when they are needed: for data that has no room in memory.

It stands wherever an ImageSet does: training and evaluation go through it batch by batch, a sample of it is
read into memory, and only labels and numbers of images are kept of the rest.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from deeppruning.data.images import ImageSet, Normalization, check_labels, count_levels, normalization_of
from deeppruning.data.source import ImageSource, Pass, read_ahead
from deeppruning.errors import DataError

HELD = 1 << 28  # bytes of pixels that are kept in memory rather than read anew at every pass
FEWEST_MEASURED = 1_000  # images that a normalisation is measured on, where all of them would take long
CHUNK = 1 << 23  # bytes that are read at once where nobody asks for batches of a size


@dataclass(frozen=True, eq=False)
class ImageStream:
    """Some images of a source, by number, with one class index each; read anew at every pass."""

    source: ImageSource
    indices: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    dtype: torch.dtype = torch.uint8
    normalization: Normalization | None = None
    readers: int | None = None  # processes that read ahead; None: as many as there are threads

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.indices), self.classes)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def num_classes(self) -> int:
        """How many classes there are, also when some have no image here."""
        return len(self.classes)

    @property
    def image_bytes(self) -> int:
        """The size of one image in memory."""
        return prod(self.image_shape) * self.dtype.itemsize

    def subset(self, indices: Tensor) -> "ImageStream":
        """The images at these indices, in this order; nothing is read."""
        return replace(self, indices=self.indices[indices], labels=self.labels[indices])

    def batches(self, places: list[Tensor], this: Pass) -> Iterator[tuple[Tensor, Tensor]]:
        """The images at these places and their labels, batch by batch, read ahead of their use."""
        wanted = [self.indices[chosen].tolist() for chosen in places]
        for chosen, numbers, (images, labels) in zip(
            places, wanted, read_ahead(self.source, wanted, self.readers, this), strict=True
        ):
            known = self.labels[chosen]
            for index, label, expected in zip(numbers, labels, known.tolist(), strict=True):
                if label is not None and label != expected:
                    raise DataError(
                        f"item {index} of the Dataset has the label {label} now and had {expected} before; "
                        "each item must keep its label"
                    )
            if tuple(images.shape[1:]) != self.image_shape or images.dtype != self.dtype:
                raise DataError(
                    f"item {numbers[0]} is an image of shape {tuple(images.shape[1:])}, {images.dtype}, "
                    f"others have {self.image_shape}, {self.dtype}; bring all to one shape and type first"
                )
            yield images, known

    def chunks(self) -> Iterator[Tensor]:
        """All images in their order, a bounded number at once."""
        size = max(1, CHUNK // self.image_bytes)
        for images, _ in self.batches(list(torch.split(torch.arange(len(self)), size)), Pass()):
            yield images

    def in_memory(self) -> ImageSet:
        """All images, read now."""
        images = torch.empty((len(self), *self.image_shape), dtype=self.dtype)
        start = 0
        for part in self.chunks():
            images[start : start + len(part)] = part
            start += len(part)
        return ImageSet(images, self.labels, self.classes, self.normalization)

    def held(self, most: int = HELD) -> "ImageSet | ImageStream":
        """In memory if that takes little and loses nothing, else as it is: passes give the same."""
        small = len(self) * self.image_bytes <= most and not self.source.roomy and not self.source.draws
        return self.in_memory() if small else self

    @cached_property
    def identity(self) -> str:
        """Something that differs when the images or labels do, found without reading the images."""
        digest = hashlib.sha256(self.source.identity().encode())
        for tensor in (self.indices, self.labels):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def telling(self) -> dict[str, Tensor]:
        """What tells it from other data."""
        return {"identity": torch.tensor(list(self.identity.encode())), "labels": self.labels}

    def share_memory_(self) -> "ImageStream":
        """Nothing to do: what worker processes need of it is small."""
        return self

    def measure(self) -> Normalization | None:
        """The normalisation of uint8 images, on all of them or, of very many, on some evenly spread."""
        if self.dtype != torch.uint8:
            return None
        most = max(FEWEST_MEASURED, HELD // self.image_bytes)
        step = -(-len(self) // most)
        counts = torch.zeros(self.image_shape[0], 256, dtype=torch.int64)
        for images in self.subset(torch.arange(0, len(self), step)).chunks():
            counts += count_levels(images)
        return normalization_of(counts)


# The two forms in which labelled images travel through the package.
Images = ImageSet | ImageStream
