"""Data from a folder of class folders with pictures, split already or not.

Either FOLDER/train/CLASS/*.png with FOLDER/test (or val, or valid) beside it, or FOLDER/CLASS/*.png, which
is then split at random, class by class. The names of the class folders are the classes, in their order.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.data.names import FileNames
from deeppruning.data.picture_files import PictureFiles, is_gray, opened
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.data.stream import HELD, ImageStream
from deeppruning.errors import DataError, InputError
from deeppruning.system.device import most_workers

SUFFIXES = (".png", ".jpg", ".jpeg")
_NOT_READ = (".bmp", ".gif", ".tif", ".tiff", ".webp")  # pictures that would be left out in silence
HEADS = 10_000  # files of which all are looked at before anything is done; of more, when they are read
TEST_NAMES = ("test", "val", "valid")


@dataclass(frozen=True)
class PictureForm:
    """How pictures are read: to which size (height, width), resized to which shorter side, by how many.

    `held` is the number of bytes that a set may take in memory; a larger one is read anew at every pass.
    """

    size: tuple[int, int] | None = None
    resize: int | None = None
    readers: int | None = None
    held: int = HELD

    def __post_init__(self) -> None:
        if self.readers is not None and not 0 <= self.readers <= most_workers():
            raise InputError(f"loading_workers must lie in 0..{most_workers()}, got {self.readers}")
        if self.resize is None:
            return
        if self.size is None:
            raise InputError(
                "image_resize says how large pictures are before images are cut out of them: give image_size"
            )
        if self.resize < min(self.size):
            raise InputError(
                f"image_resize must be at least the shorter side of image_size, {min(self.size)}, "
                f"got {self.resize}"
            )


def load_folder(
    folder: Path,
    *,
    image_size: tuple[int, int] | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    wanted: PictureForm | None = None,
) -> DataSplits:
    """All pictures, brought to `image_size` (height, width), by default that of the first picture.

    If every picture is gray, images have one channel; if any has colours, all become RGB. Few small
    pictures are read into memory, others whenever they are needed, to the same result.
    """
    wanted = wanted or PictureForm(image_size)
    train_folder = folder / "train"
    test_folder = next((folder / name for name in TEST_NAMES if (folder / name).is_dir()), None)
    if train_folder.is_dir() and test_folder is not None:
        parts = _Listed.of(train_folder), _Listed.of(test_folder)
        if set(parts[0].classes) != set(parts[1].classes):
            raise DataError(
                f"{train_folder} and {test_folder} must have the same class folders; only in one of them: "
                f"{', '.join(sorted(set(parts[0].classes) ^ set(parts[1].classes)))}"
            )
        form = _common_form(parts, wanted)
        train, test = (listed.stream(*form, wanted) for listed in parts)
    else:
        listed = _Listed.of(folder)
        whole = listed.stream(*_common_form((listed,), wanted), wanted)
        train, test = stratified_split(whole, test_share, seed)
    needed = (len(train) + len(test)) * train.image_bytes
    most = wanted.held if needed <= wanted.held else 0  # of both parts or of none
    splits = DataSplits(folder.name, train.held(most), test.held(most))
    return splits.with_normalization(splits.train.measure())


@dataclass(frozen=True, eq=False)
class _Listed:
    """The pictures of a folder of class folders."""

    names: FileNames
    lengths: NDArray[np.int64]
    labels: Tensor
    classes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> "_Listed":
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        counts: dict[str, int] = {}
        lengths: list[int] = []

        def listed() -> Iterator[str]:
            for path in folders:
                found = sorted(_pictures(path), key=lambda one: one[0])
                counts[path.name] = len(found)
                for parts, length in found:
                    lengths.append(length)
                    yield "/".join((path.name, *parts))

        names = FileNames.of(folder, listed())
        _check_classes(folder, counts)
        labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts.values())))
        return cls(names, np.array(lengths, np.int64), labels, tuple(counts))

    def stream(self, mode: str, size: tuple[int, int], wanted: PictureForm) -> ImageStream:
        source = PictureFiles(self.names, self.lengths, mode, size, wanted.resize)
        indices = torch.arange(len(self.names))
        shape = (source.channels, *size)
        return ImageStream(source, indices, self.labels, self.classes, shape, readers=wanted.readers)


def _pictures(folder: Path, below: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """The pictures in a class folder, however deep, as parts of their path, with the length of each."""
    with os.scandir(folder) as entries:
        for entry in entries:
            suffix = os.path.splitext(entry.name)[1]  # noqa: PTH122 - a Path for each would take long
            if entry.is_dir(follow_symlinks=False):
                yield from _pictures(folder / entry.name, (*below, entry.name))
            elif suffix in _NOT_READ:
                raise DataError(
                    f"{entry.path} cannot be read, only PNG and JPEG are; convert it or remove it"
                )
            elif suffix.lower() in SUFFIXES and not entry.name.startswith(".") and entry.is_file():
                yield (*below, entry.name), entry.stat().st_size


def _check_classes(folder: Path, counts: dict[str, int]) -> None:
    kinds = ", ".join(SUFFIXES)
    if not any(counts.values()):
        raise DataError(
            f"{folder} has no class folders with pictures ({kinds}); expected e.g. {folder}/cat/1.png"
        )
    for name, count in counts.items():
        if not count:
            raise DataError(f"class folder {folder / name} has no pictures ({kinds}); add some or remove it")
    if len(counts) < 2:
        raise DataError(f"{folder} has one class only ({next(iter(counts))}); at least two are needed")


def _common_form(parts: tuple[_Listed, ...], wanted: PictureForm) -> tuple[str, tuple[int, int]]:
    """Colour mode and size for all; reads the heads of all files or, of very many, until one has colours."""
    size, gray = wanted.size, True
    few = sum(len(listed.names) for listed in parts) <= HEADS
    for listed in parts:
        for path in listed.names:
            if not (gray or few):
                break
            with opened(path) as picture:
                size = size or (picture.height, picture.width)
                gray = gray and is_gray(picture)
    assert size is not None
    return "L" if gray else "RGB", size
