"""MNIST and Fashion-MNIST from IDX files, gzipped or not."""

import gzip
import math
import struct
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from deeppruning.data.images import ImageSet
from deeppruning.data.registry import DATA_SETS, DataLocation, NamedData
from deeppruning.data.splits import DataSplits
from deeppruning.data.unpacking import check_unpacked
from deeppruning.errors import DataError

MNIST_CLASSES = tuple(str(digit) for digit in range(10))
FASHION_CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
DEBIAN_FASHION = Path("/usr/share/dataset-fashion-mnist")

_BYTES = 0x08  # the IDX code of unsigned bytes; the last header byte is the number of dimensions


def load_idx(name: str, folder: Path, classes: tuple[str, ...]) -> DataSplits:
    """Both parts of a data set in files of the usual names."""
    train = _load_mnist_part(folder, "train", classes)
    test = _load_mnist_part(folder, "t10k", classes)
    return DataSplits(name, train, test).with_normalization(train.measure())


def read_idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    """The array in one IDX file."""
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
            body = file.read(expected + 1)  # one byte more, to notice files that are too long
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; it may be cut short; get it again") from error
    if len(body) != expected:
        length = f"{start + len(body)}" if len(body) < expected else "more"
        raise DataError(
            f"{path} must have {start + expected} bytes for shape {shape}, got {length}; get it again"
        )
    return np.frombuffer(body, np.uint8).reshape(shape)


def _load_mnist_part(folder: Path, part: str, classes: tuple[str, ...]) -> ImageSet:
    arrays = []
    for what, dimensions in (("images", 3), ("labels", 1)):
        path = _idx_file(folder, part, what, dimensions)
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


def _idx_file(folder: Path, part: str, what: str, dimensions: int) -> Path | None:
    names = (f"{part}-{what}{mark}idx{dimensions}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _register_idx_data(
    name: str,
    about: str,
    folders: tuple[str, ...],
    classes: tuple[str, ...],
    source: str,
    elsewhere: tuple[Path, ...] = (),
) -> None:
    def find(folder: Path) -> DataLocation | None:
        inside = [folder / subfolder for subfolder in folders]
        # Both sets use the same file names: only the folder's own name can tell them apart.
        if ("fashion" in folder.name.lower()) == ("fashion" in name):
            inside.append(folder)
        path = next((place for place in inside if _idx_file(place, "train", "images", 3)), None)
        return DataLocation(path, partial(load_idx, name, path, classes)) if path else None

    DATA_SETS.add(
        NamedData(
            name=name,
            about=about,
            looked_for=f"train-images-idx3-ubyte[.gz] and the other three in {' or '.join(folders)}",
            how_to_get=f"put the four IDX files into the data folder under {folders[0]}; from {source}",
            find=find,
            elsewhere=elsewhere,
        ),
        place=30,
    )


_register_idx_data(
    "mnist",
    "70,000 handwritten digits, 28x28, gray, 10 classes",
    ("mnist", "MNIST/raw"),
    MNIST_CLASSES,
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
_register_idx_data(
    "fashion-mnist",
    "70,000 pieces of clothing, 28x28, gray, 10 classes",
    ("fashion-mnist", "FashionMNIST/raw"),
    FASHION_CLASSES,
    "https://github.com/zalandoresearch/fashion-mnist or, on Debian, apt install dataset-fashion-mnist",
    (DEBIAN_FASHION,),
)
