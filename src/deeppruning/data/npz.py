"""Data from a .npz file of numpy arrays: images and labels, in one part or split already."""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.data.convert import as_image_set
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.data.unpacking import check_unpacked
from deeppruning.errors import DataError

WHOLE = ("images", "labels")
SPLIT = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path: Path) -> DataSplits:
    """The file has the keys images and labels, which are split, or x_train, y_train, x_test and y_test."""
    arrays = _read_npz_arrays(path)
    try:
        if set(SPLIT) <= set(arrays):
            parts = [(arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])]
            classes = max((as_image_set(*part).classes for part in parts), key=len)
            train, test = (as_image_set(*part, classes) for part in parts)
        else:
            whole = as_image_set(arrays["images"], arrays["labels"])
            train, test = stratified_split(whole)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return DataSplits(path.stem, train, test).with_normalization(train.measure())


def _read_npz_arrays(path: Path) -> dict[str, Any]:
    """The arrays of the file, checked before they are unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.removesuffix(".npy") for entry in archive.namelist()]
            keys = SPLIT if set(SPLIT) <= set(names) else WHOLE
            if not set(keys) <= set(names):
                raise DataError(
                    f"{path} must have the keys {', '.join(WHOLE)} or {', '.join(SPLIT)}; "
                    f"found {', '.join(names[:10])[:200] or 'none'}"
                )
            entries = [archive.getinfo(f"{key}.npy") for key in keys]
            check_unpacked(
                path,
                packed=sum(entry.compress_size for entry in entries),
                unpacked=sum(entry.file_size for entry in entries),
            )
            return {key: _npz_array(archive, entry) for key, entry in zip(keys, entries, strict=True)}
    except DataError:
        raise
    # zipfile and numpy raise nearly anything for a damaged file.
    except Exception as error:
        raise DataError(f"{path} cannot be read as plain numpy arrays: {error}") from error


def _npz_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """One array; its header is not trusted but compared with the size of its entry."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_header is None:
            raise ValueError(f"{entry.filename} is an array of format {version}")
        shape, fortran, dtype = read_header(file)  # type: ignore[no-untyped-call]
        if dtype.hasobject or dtype.kind not in "biuf":
            raise ValueError(f"{entry.filename} holds {dtype}, not plain numbers")
        needed = math.prod(shape) * dtype.itemsize
        if needed != entry.file_size - file.tell():
            raise ValueError(
                f"{entry.filename} claims the shape {shape}, {needed} bytes, but has "
                f"{entry.file_size - file.tell()}"
            )
        array = np.frombuffer(file.read(), dtype)
        return array.reshape(shape, order="F" if fortran else "C")
