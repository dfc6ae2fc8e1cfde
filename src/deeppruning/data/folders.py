"""Data from a folder of class folders with pictures.

Either FOLDER/train/CLASS/*.png next to FOLDER/test (or val, or valid), or FOLDER/CLASS/*.png, which is split
at random, class by class. The classes are the names of the class folders, in alphabetical order.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deeppruning.data.pictures import FileNames, PictureFiles, is_gray, open_file
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.data.stream import HELD, ImageStream
from deeppruning.errors import DataError, InputError
from deeppruning.system.device import most_workers

SUFFIXES = (".png", ".jpg", ".jpeg")
_UNSUPPORTED = (".bmp", ".gif", ".tif", ".tiff", ".webp")  # refused, because skipping them would go unnoticed
HEADERS = 10_000  # files up to which all headers are read before anything else
TEST_NAMES = ("test", "val", "valid")


@dataclass(frozen=True)
class PictureForm:
    """How pictures are read: image size (height, width), shorter side before cropping, reading processes.

    `held` is the number of bytes a set may take in memory; a larger one is read again in every pass.
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
            raise InputError("image_resize is the size before images are cropped: give image_size as well")
        if self.resize < min(self.size):
            raise InputError(
                f"image_resize must be at least the shorter side of image_size, {min(self.size)}, "
                f"got {self.resize}"
            )


def load_folder(folder: Path, form: PictureForm | None = None) -> DataSplits:
    """All pictures as images of one size, by default that of the first picture.

    Images have one channel if every picture is gray, else three. A small set is read into memory, a larger
    one whenever it is needed, with the same result.
    """
    form = form or PictureForm()
    train_folder = folder / "train"
    test_folder = next((folder / name for name in TEST_NAMES if (folder / name).is_dir()), None)
    if train_folder.is_dir() and test_folder is not None:
        parts = _PictureList.of(train_folder), _PictureList.of(test_folder)
        if set(parts[0].classes) != set(parts[1].classes):
            raise DataError(
                f"{train_folder} and {test_folder} must have the same class folders; only in one of them: "
                f"{', '.join(sorted(set(parts[0].classes) ^ set(parts[1].classes)))}"
            )
        mode, size = _common_form(parts, form)
        train, test = (pictures.stream(mode, size, form) for pictures in parts)
    else:
        pictures = _PictureList.of(folder)
        whole = pictures.stream(*_common_form((pictures,), form), form)
        train, test = stratified_split(whole)
    needed = (len(train) + len(test)) * train.image_bytes
    most = form.held if needed <= form.held else 0  # both parts in memory, or none
    splits = DataSplits(folder.name, train.held(most), test.held(most))
    return splits.with_normalization(splits.train.measure())


@dataclass(frozen=True, eq=False)
class _PictureList:
    """The pictures of a folder of class folders."""

    names: FileNames
    lengths: NDArray[np.int64]
    labels: Tensor
    classes: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> "_PictureList":
        """The pictures in each class folder of a folder."""
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        counts: dict[str, int] = {}
        lengths: list[int] = []

        def listed() -> Iterator[str]:
            for path in folders:
                files = sorted(_pictures_below(path), key=lambda file: file[0])
                counts[path.name] = len(files)
                for parts, length in files:
                    lengths.append(length)
                    yield "/".join((path.name, *parts))

        names = FileNames.of(folder, listed())
        _check_class_folders(folder, counts)
        labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts.values())))
        return cls(names, np.array(lengths, np.int64), labels, tuple(counts))

    def stream(self, mode: str, size: tuple[int, int], form: PictureForm) -> ImageStream:
        """The pictures as a stream of images of one size."""
        source = PictureFiles(self.names, self.lengths, mode, size, form.resize)
        indices = torch.arange(len(self.names))
        shape = (source.channels, *size)
        return ImageStream(source, indices, self.labels, self.classes, shape, readers=form.readers)


def _pictures_below(folder: Path, below: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """The pictures in a class folder and its subfolders: the parts of each path, and the file's length."""
    with os.scandir(folder) as entries:
        for entry in entries:
            suffix = os.path.splitext(entry.name)[1]  # noqa: PTH122 - a Path for each would take long
            if entry.is_dir(follow_symlinks=False):
                yield from _pictures_below(folder / entry.name, (*below, entry.name))
            elif suffix in _UNSUPPORTED:
                raise DataError(
                    f"{entry.path} cannot be read, only PNG and JPEG are supported; convert it or remove it"
                )
            elif suffix.lower() in SUFFIXES and not entry.name.startswith(".") and entry.is_file():
                yield (*below, entry.name), entry.stat().st_size


def _check_class_folders(folder: Path, counts: dict[str, int]) -> None:
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


def _common_form(parts: tuple[_PictureList, ...], form: PictureForm) -> tuple[str, tuple[int, int]]:
    """Colour mode and size; reads the headers of all files or, of very many, until one has colours."""
    size, gray = form.size, True
    few = sum(len(pictures.names) for pictures in parts) <= HEADERS
    for pictures in parts:
        for path in pictures.names:
            if not (gray or few):
                break
            with open_file(path) as picture:
                size = size or (picture.height, picture.width)
                gray = gray and is_gray(picture)
    assert size is not None
    return "L" if gray else "RGB", size
