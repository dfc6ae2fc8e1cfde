"""Data from a .npz file of numpy arrays: images and labels, or four arrays already split."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from deeppruning.data.convert import as_image_set
from deeppruning.data.images import measure_normalization
from deeppruning.data.splits import DataSplits, stratified_split
from deeppruning.errors import DataError

WHOLE = ("images", "labels")
SPLIT = ("x_train", "y_train", "x_test", "y_test")


def load_npz(path: Path, *, test_share: float = 0.2, seed: int = 0) -> DataSplits:
    """Keys images and labels (then split by `test_share`), or x_train, y_train, x_test, y_test."""
    arrays = _read(path)
    try:
        if set(SPLIT) <= set(arrays):
            parts = [(arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])]
            number = max(as_image_set(part).num_classes for part in parts)
            classes = tuple(str(index) for index in range(number))
            train, test = (as_image_set(part, classes=classes) for part in parts)
        else:
            both = as_image_set((arrays["images"], arrays["labels"]))
            train, test = stratified_split(both, test_share, seed)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return DataSplits(path.stem, train, test).with_normalization(measure_normalization(train.images))


def _read(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is one array; save both by numpy.savez(images=..., labels=...)")
            keys = SPLIT if set(SPLIT) <= set(stored.files) else WHOLE
            if not set(keys) <= set(stored.files):
                raise DataError(
                    f"{path} must have the keys {', '.join(WHOLE)} or {', '.join(SPLIT)}; "
                    f"found {', '.join(stored.files) or 'none'}"
                )
            return {key: stored[key] for key in keys}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as plain numpy arrays: {error}") from error
