"""Data from a folder of class folders with pictures, split already or not.

Either FOLDER/train/CLASS/*.png with FOLDER/test (or val, or valid) beside it, or FOLDER/CLASS/*.png, which
is then split at random, class by class. The names of the class folders are the classes, in their order.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from deeppruning.data.bounds import LARGEST
from deeppruning.data.images import ImageSet, measure_normalization
from deeppruning.data.pictures import PROBLEMS, open_picture
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg")
_NOT_READ = (".bmp", ".gif", ".tif", ".tiff", ".webp")  # pictures that would be left out in silence
TEST_NAMES = ("test", "val", "valid")
_GRAY = ("1", "L", "LA", "I", "I;16")


def load_folder(
    folder: Path, *, image_size: tuple[int, int] | None = None, test_share: float = 0.2, seed: int = 0
) -> DataSplits:
    """All pictures, brought to `image_size` (height, width), by default that of the first picture.

    If every picture is gray, images have one channel; if any has colours, all become RGB.
    """
    train_folder = folder / "train"
    test_folder = next((folder / name for name in TEST_NAMES if (folder / name).is_dir()), None)
    if train_folder.is_dir() and test_folder is not None:
        train_files, test_files = _by_class(train_folder), _by_class(test_folder)
        if set(train_files) != set(test_files):
            raise DataError(
                f"{train_folder} and {test_folder} must have the same class folders; only in one of them: "
                f"{', '.join(sorted(set(train_files) ^ set(test_files)))}"
            )
        everything = [path for paths in (*train_files.values(), *test_files.values()) for path in paths]
        mode, size = _common_form(everything, image_size)
        train, test = _read(train_files, mode, size), _read(test_files, mode, size)
    else:
        files = _by_class(folder)
        mode, size = _common_form([path for paths in files.values() for path in paths], image_size)
        train, test = stratified_split(_read(files, mode, size), test_share, seed)
    return DataSplits(folder.name, train, test).with_normalization(measure_normalization(train.images))


def _by_class(folder: Path) -> dict[str, list[Path]]:
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    files = {
        path.name: sorted(
            file
            for file in path.rglob("*")
            if file.suffix.lower() in SUFFIXES and file.is_file() and not file.name.startswith(".")
        )
        for path in folders
    }
    kinds = ", ".join(SUFFIXES)
    strange = next((file for path in folders for file in path.rglob("*") if file.suffix in _NOT_READ), None)
    if strange is not None:
        raise DataError(f"{strange} cannot be read, only PNG and JPEG are; convert it or remove it")
    if not any(files.values()):
        raise DataError(
            f"{folder} has no class folders with pictures ({kinds}); expected e.g. {folder}/cat/1.png"
        )
    for name, paths in files.items():
        if not paths:
            raise DataError(f"class folder {folder / name} has no pictures ({kinds}); add some or remove it")
    if len(files) < 2:
        raise DataError(f"{folder} has one class only ({next(iter(files))}); at least two are needed")
    return files


def _common_form(paths: list[Path], image_size: tuple[int, int] | None) -> tuple[str, tuple[int, int]]:
    """Colour mode and size for all; reads only the head of each file."""
    gray = True
    for path in paths:
        with _opened(path) as picture:
            gray = gray and picture.mode in _GRAY
            image_size = image_size or (picture.height, picture.width)
    assert image_size is not None
    needed = len(paths) * (1 if gray else 3) * image_size[0] * image_size[1]
    if needed > LARGEST:
        raise DataError(
            f"{len(paths)} pictures of {image_size[1]}x{image_size[0]} pixels take "
            f"{needed / 2**30:.0f} GiB of memory; give a smaller image size, e.g. --image-size 224"
        )
    return "L" if gray else "RGB", image_size


def _read(files: dict[str, list[Path]], mode: str, size: tuple[int, int]) -> ImageSet:
    height, width = size
    channels = 1 if mode == "L" else 3
    paths = [path for members in files.values() for path in members]
    images = np.empty((len(paths), channels, height, width), np.uint8)
    for index, path in enumerate(paths):
        with _opened(path) as picture:
            try:
                converted = _eight_bit(picture).convert(mode)
            except PROBLEMS as error:
                raise _unreadable(path, error) from error
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            images[index] = np.asarray(converted).reshape(height, width, channels).transpose(2, 0, 1)
    labels = [index for index, members in enumerate(files.values()) for _ in members]
    return ImageSet(torch.from_numpy(images), torch.tensor(labels), tuple(files))


def _eight_bit(picture: Image.Image) -> Image.Image:
    if picture.mode not in ("I", "I;16"):
        return picture
    # Pillow would cut 16-bit gray off at 255, leaving a white picture, where scaling is meant.
    return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8))


def _opened(path: Path) -> Image.Image:
    try:
        return open_picture(path)
    except PROBLEMS as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a readable picture: {error}; repair or remove it")
