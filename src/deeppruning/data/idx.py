"""MNIST and Fashion-MNIST from IDX files, gzipped or not."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from deeppruning.data.bounds import check_unpacked
from deeppruning.data.images import ImageSet, measure_normalization
from deeppruning.data.splits import DataSplits
from deeppruning.errors import DataError

MNIST_CLASSES = tuple(str(digit) for digit in range(10))
FASHION_CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip

_BYTES = 0x08  # the IDX code of unsigned bytes; the last header byte is the number of dimensions


def find_idx(folders: list[Path]) -> Path | None:
    """The first folder that holds the training images."""
    return next((folder for folder in folders if _file(folder, "train", "images", 3)), None)


def load_idx(name: str, folder: Path, classes: tuple[str, ...]) -> DataSplits:
    """Both parts of a data set in the usual file names."""
    train = _part(folder, "train", classes)
    test = _part(folder, "t10k", classes)
    return DataSplits(name, train, test).with_normalization(measure_normalization(train.images))


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The bytes of one IDX file in their shape."""
    start = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(start)
            if len(head) < start or head[:4] != bytes((0, 0, _BYTES, dimensions)):
                raise DataError(
                    f"{path} is not an IDX file of bytes in {dimensions} dimension(s): it begins with "
                    f"{head[:4].hex()}, not {bytes((0, 0, _BYTES, dimensions)).hex()}"
                )
            shape = struct.unpack(f">{dimensions}I", head[4:])
            expected = math.prod(shape)
            check_unpacked(path, packed=path.stat().st_size, unpacked=expected)
            body = file.read(expected + 1)  # one more than there should be: longer files are seen, not read
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; it may be cut short; get it again") from error
    if len(body) != expected:
        got = f"{start + len(body)}" if len(body) < expected else "more"
        raise DataError(
            f"{path} must have {start + expected} bytes for shape {shape}, got {got}; get it again"
        )
    return np.frombuffer(body, np.uint8).reshape(shape)


def _part(folder: Path, part: str, classes: tuple[str, ...]) -> ImageSet:
    arrays = []
    for what, dimensions in (("images", 3), ("labels", 1)):
        path = _file(folder, part, what, dimensions)
        if path is None:
            raise DataError(
                f"{folder} lacks {part}-{what}-idx{dimensions}-ubyte (or the same with .gz); "
                "the data set is not complete, get it again"
            )
        arrays.append(read_idx(path, dimensions))
    images, labels = arrays
    try:
        return ImageSet(
            torch.from_numpy(images.copy()).unsqueeze(1), torch.from_numpy(labels.astype(np.int64)), classes
        )
    except DataError as error:
        raise DataError(f"{folder}, {part} files: {error}") from error


def _file(folder: Path, part: str, what: str, dimensions: int) -> Path | None:
    for separator in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{part}-{what}{separator}idx{dimensions}-ubyte{suffix}"
            if path.is_file():
                return path
    return None
