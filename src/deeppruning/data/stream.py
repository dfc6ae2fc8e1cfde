"""Labelled images that are read when they are needed, for data that does not fit in memory.

An ImageStream can be used wherever an ImageSet can: training and evaluation read it batch by batch, a sample
of it is read into memory, and only the labels and indices of the other images are kept. Random choices for an
image depend on the seed of the pass and the index of the image alone, so it makes no difference how many
processes read ahead, and which of them reads it.
"""

import ctypes
import hashlib
import multiprocessing
import os
import random
import signal
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deeppruning.data.images import ImageSet, Normalization, check_labels, count_levels, normalization_of
from deeppruning.errors import DataError
from deeppruning.genome import derived_seed

HELD = 1 << 28  # bytes of pixels up to which images are kept in memory instead of read in every pass
FEWEST_MEASURED = 1_000  # images to measure a normalisation on, if measuring all of them would take long
CHUNK = 1 << 23  # bytes that are read at once where no batch size is given
MOST_READERS = 4  # processes that read ahead by default
WORTH_READERS = 200  # images per pass; fewer are read before a process has started
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ImageSource(ABC):
    """Images by index. Sources are sent to worker processes, so they must not hold open files."""

    roomy = False  # whether a picture is larger than the image, so that crops can be cut from anywhere in it
    draws = False  # whether reading may use the global random generators

    @abstractmethod
    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """An image (C, H, W), uint8 or float32, and its label if the source provides one.

        All randomness follows from `key`; with `shift` the crop may be taken from anywhere, not only from
        the centre. Raises DataError with the name of an image that cannot be read.
        """

    @abstractmethod
    def identity(self) -> str:
        """A text that differs if the images do, found without reading them."""


@dataclass(frozen=True)
class Pass:
    """One pass over images: the seed of its random choices, and whether crops are taken from anywhere."""

    seed: int = 0
    shift: bool = False


@dataclass(frozen=True, eq=False)
class ImageStream:
    """Images of a source, by index, with one class index each; read again in every pass."""

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
        """The number of classes, including those without an image here."""
        return len(self.classes)

    @property
    def reader_count(self) -> int:
        """The number of processes that read ahead in a pass over all images, at most."""
        return _usual_reader_count(len(self)) if self.readers is None else self.readers

    @property
    def image_bytes(self) -> int:
        """The size of one image in memory."""
        return prod(self.image_shape) * self.dtype.itemsize

    def subset(self, indices: Tensor) -> "ImageStream":
        """The images at these indices, in this order; nothing is read."""
        return replace(self, indices=self.indices[indices], labels=self.labels[indices])

    def batches(self, places: list[Tensor], this: Pass) -> Iterator[tuple[Tensor, Tensor]]:
        """The images at these places and their labels, batch by batch, read ahead of their use."""
        numbers = [self.indices[batch].tolist() for batch in places]
        for batch, indices, (images, labels) in zip(
            places, numbers, read_ahead(self.source, numbers, self.readers, this), strict=True
        ):
            expected = self.labels[batch]
            for index, label, before in zip(indices, labels, expected.tolist(), strict=True):
                if label is not None and label != before:
                    raise DataError(
                        f"item {index} of the Dataset has the label {label} now and had {before} before; "
                        "each item must keep its label"
                    )
            if tuple(images.shape[1:]) != self.image_shape or images.dtype != self.dtype:
                raise DataError(
                    _unlike_images(indices[0], images, "others have", self.image_shape, self.dtype)
                )
            yield images, expected

    def chunks(self) -> Iterator[Tensor]:
        """All images in order, a bounded number at a time."""
        size = max(1, CHUNK // self.image_bytes)
        for images, _ in self.batches(list(torch.split(torch.arange(len(self)), size)), Pass()):
            yield images

    def in_memory(self) -> ImageSet:
        """All images, read into memory."""
        images = torch.empty((len(self), *self.image_shape), dtype=self.dtype)
        start = 0
        for part in self.chunks():
            images[start : start + len(part)] = part
            start += len(part)
        return ImageSet(images, self.labels, self.classes, self.normalization)

    def held(self, most: int = HELD) -> "ImageSet | ImageStream":
        """In memory if that takes at most `most` bytes and every pass reads the same, else unchanged."""
        small = len(self) * self.image_bytes <= most and not self.source.roomy and not self.source.draws
        return self.in_memory() if small else self

    @cached_property
    def identity(self) -> str:
        """A hash that differs if the images or labels do, found without reading the images."""
        digest = hashlib.sha256(self.source.identity().encode())
        for tensor in (self.indices, self.labels):
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def key_tensors(self) -> dict[str, Tensor]:
        """Tensors that differ from those of any other data."""
        return {"identity": torch.tensor(list(self.identity.encode())), "labels": self.labels}

    def measure(self) -> Normalization | None:
        """The normalisation of uint8 images, measured on all or, of very many, on evenly spaced ones."""
        if self.dtype != torch.uint8:
            return None
        most = max(FEWEST_MEASURED, HELD // self.image_bytes)
        step = -(-len(self) // most)
        counts = torch.zeros(self.image_shape[0], 256, dtype=torch.int64)
        for images in self.subset(torch.arange(0, len(self), step)).chunks():
            counts += count_levels(images)
        return normalization_of(counts)


# The two forms of labelled images that all packages accept.
Images = ImageSet | ImageStream
Read = tuple[Tensor, list[int | None]]


def read_ahead(
    source: ImageSource, batches: Sequence[Sequence[int]], readers: int | None, this: Pass
) -> Iterator[Read]:
    """The images of each batch, stacked, and the labels the source provides, in the order of the batches.

    `readers` processes read ahead, none if it is 0; None: as many as this process has threads.
    """
    reader = _BatchReader(source, this)
    images = sum(map(len, batches))
    count = min(_usual_reader_count(images) if readers is None else readers, len(batches))
    if count == 0:
        for batch in batches:
            yield _checked_batch(reader[batch])
        return
    with warnings.catch_warnings():
        # Python warns about a fork while threads run; the readers take none of our locks and use no threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*worker processes in total", category=UserWarning)
        loader: DataLoader[Any] = DataLoader(
            reader,
            batch_size=None,
            sampler=[list(batch) for batch in batches],
            num_workers=count,
            collate_fn=_collate_nothing,
            worker_init_fn=partial(_end_reader_with_parent, os.getpid()),
            generator=torch.Generator(),  # otherwise it draws from the one that layers draw from
            multiprocessing_context="fork" if _can_fork_readers() else None,
        )
        results = iter(loader)
    for result in results:
        yield _checked_batch(result)


def _can_fork_readers() -> bool:
    return sys.platform == "linux" and "fork" in multiprocessing.get_all_start_methods()


def _usual_reader_count(images: int) -> int:
    """One for each thread of this process; none if starting them takes longer than reading."""
    return (
        min(MOST_READERS, torch.get_num_threads()) if _can_fork_readers() and images >= WORTH_READERS else 0
    )


class _BatchReader(Dataset[Any]):
    """Reads batches in any process, as arrays: tensors would be sent through /dev/shm.

    Containers often have only 64 MB there. A batch that cannot be read is returned as the reason, because an
    exception would arrive wrapped in the traceback of the process.
    """

    def __init__(self, source: ImageSource, this: Pass) -> None:
        self.source = source
        self.this = this

    def __getitem__(self, batch: Sequence[int]) -> tuple[NDArray[Any], list[int | None]] | str:
        images: NDArray[Any] | None = None
        labels: list[int | None] = []
        with _random_state_restored() if self.source.draws else nullcontext():
            for place, index in enumerate(batch):
                try:
                    image, label = self.source.read(
                        index, derived_seed(self.this.seed, index), shift=self.this.shift
                    )
                except DataError as error:
                    return str(error)
                array = image.numpy()
                if images is None:
                    images = np.empty((len(batch), *array.shape), array.dtype)
                if (array.shape, array.dtype) != (images.shape[1:], images.dtype):
                    first = f"but item {batch[0]} has"
                    return _unlike_images(index, array[None], first, images.shape[1:], images.dtype)
                images[place] = array
                labels.append(label)
        assert images is not None
        return images, labels


def _unlike_images(index: int, images: Any, others: str, shape: tuple[int, ...], dtype: Any) -> str:
    return (
        f"item {index} is an image of shape {tuple(images.shape[1:])}, {images.dtype}, {others} {shape}, "
        f"{dtype}; convert all images to one shape and type first"
    )


def _checked_batch(result: Any) -> Read:
    if isinstance(result, str):
        raise DataError(result)
    images, labels = result
    return torch.from_numpy(images), labels


def _collate_nothing(result: Any) -> Any:
    return result


def _end_reader_with_parent(parent: int, _number: int) -> None:
    """Have Linux end this process with its parent, which may be killed in the middle of a batch."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


@contextmanager
def _random_state_restored() -> Iterator[None]:
    """Restore the global random generators afterwards: layers draw from them too."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
