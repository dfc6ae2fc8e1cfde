"""Where images that are not in memory come from, one by one, and how worker processes read them ahead.

What a pass draws at random for an image follows from the pass's seed and the image's number alone: how many
processes read, and which of them reads it, makes no difference.
"""

import ctypes
import multiprocessing
import os
import random
import signal
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deeppruning.errors import DataError
from deeppruning.genome import derived_seed

MOST_READERS = 4  # processes, where nobody says how many
WORTH_READERS = 200  # images of a pass; fewer are read before a process has started
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ImageSource(ABC):
    """Images by number. Sources travel to worker processes: keep open files out of them."""

    roomy = False  # whether a picture is larger than the image cut out of it, so that there is one to choose
    draws = False  # whether reading may draw from the random generators that all code shares

    @abstractmethod
    def read(self, index: int, key: int, *, shift: bool) -> tuple[Tensor, int | None]:
        """An image (C, H, W), uint8 or float32, and its label where it comes with one.

        All that is random follows from `key`; with `shift` an image may be cut out anywhere, not only from
        the middle. Raises DataError, which says which image cannot be read.
        """

    @abstractmethod
    def identity(self) -> str:
        """Something that differs when the images do, found without reading them."""


@dataclass(frozen=True)
class Pass:
    """One time through some images: the seed of what is random, and whether images are cut out anywhere."""

    seed: int = 0
    shift: bool = False


Read = tuple[Tensor, list[int | None]]


def read_ahead(
    source: ImageSource, batches: Sequence[Sequence[int]], readers: int | None, this: Pass
) -> Iterator[Read]:
    """The images of each batch, stacked, with the labels that came with them; in the order of the batches.

    `readers` processes read ahead, none if it is 0; None: as many as this process has threads.
    """
    reader = _Reader(source, this)
    images = sum(map(len, batches))
    count = min(_usual_readers(images) if readers is None else readers, len(batches))
    if count == 0:
        for batch in batches:
            yield _opened(reader[batch])
        return
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; the readers take no locks of ours and use no threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*worker processes in total", category=UserWarning)
        loader: DataLoader[Any] = DataLoader(
            reader,
            batch_size=None,
            sampler=[list(batch) for batch in batches],
            num_workers=count,
            collate_fn=_as_it_is,
            worker_init_fn=partial(_end_with, os.getpid()),
            generator=torch.Generator(),  # otherwise it draws from the one that layers draw from
            multiprocessing_context="fork" if _can_fork() else None,
        )
        found = iter(loader)
    for one in found:
        yield _opened(one)


def _can_fork() -> bool:
    return sys.platform == "linux" and "fork" in multiprocessing.get_all_start_methods()


def _usual_readers(images: int) -> int:
    """One beside each process of a pool, which has one thread; none where starting them takes longer."""
    return min(MOST_READERS, torch.get_num_threads()) if _can_fork() and images >= WORTH_READERS else 0


@dataclass(frozen=True)
class _Unread:
    """Why a batch could not be read: an exception would arrive wrapped in a trace of the process."""

    reason: str


class _Reader(Dataset[Any]):
    """Reads batches in whichever process it is in; arrays, for tensors would travel through /dev/shm.

    Containers often have only 64 MB there.
    """

    def __init__(self, source: ImageSource, this: Pass) -> None:
        self.source = source
        self.this = this

    def __getitem__(self, batch: Sequence[int]) -> "tuple[NDArray[Any], list[int | None]] | _Unread":
        images: NDArray[Any] | None = None
        labels: list[int | None] = []
        with _random_state_kept() if self.source.draws else nullcontext():
            for place, index in enumerate(batch):
                try:
                    image, label = self.source.read(
                        index, derived_seed(self.this.seed, index), shift=self.this.shift
                    )
                except DataError as error:
                    return _Unread(str(error))
                array = image.numpy()
                if images is None:
                    images = np.empty((len(batch), *array.shape), array.dtype)
                if (array.shape, array.dtype) != (images.shape[1:], images.dtype):
                    return _Unread(_unlike(index, array, batch[0], images))
                images[place] = array
                labels.append(label)
        assert images is not None
        return images, labels


def _unlike(index: int, array: NDArray[Any], first: int, images: NDArray[Any]) -> str:
    return (
        f"item {index} is an image of shape {array.shape}, {array.dtype}, but item {first} has "
        f"{images.shape[1:]}, {images.dtype}; bring all to one shape and type first"
    )


def _opened(read: Any) -> Read:
    if isinstance(read, _Unread):
        raise DataError(read.reason)
    images, labels = read
    return torch.from_numpy(images), labels


def _as_it_is(read: Any) -> Any:
    return read


def _end_with(parent: int, _number: int) -> None:
    """Have Linux end this process with its parent, which may be killed in the middle of a batch."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Give back the generators that all code shares as they were: layers draw from them too."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
