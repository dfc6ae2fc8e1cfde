"""Data from a user's own function, named as `package.module:function` or `file.py:function`."""

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from deeppruning.data.dataset_items import as_images_or_stream
from deeppruning.data.images import ImageSet
from deeppruning.data.splits import DataSplits
from deeppruning.errors import DataError, DeepPruningError, InputError, describe_raised, unknown


def load_custom(spec: str) -> DataSplits:
    """Call the function without arguments; it returns DataSplits or a pair (train, test).

    Each of the pair is anything that `as_images_or_stream` takes. uint8 arrays get the normalisation
    measured on the training images; an ImageSet keeps its own.
    """
    place, _, name = spec.rpartition(":")
    module = _module(place, spec)
    function = getattr(module, name, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"function of {place}", name, known)
    if not callable(function):
        raise InputError(f"{spec} is not a function but {type(function).__name__}")
    try:
        result = function()
    except DeepPruningError:
        raise
    except Exception as error:
        # The user's own code may raise anything; say whose call it was and keep the cause.
        raise DataError(f"{spec}() failed with {describe_raised(error)}") from error
    return result if isinstance(result, DataSplits) else _splits(spec, result)


def _splits(spec: str, result: Any) -> DataSplits:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise DataError(
            f"{spec}() must return DataSplits or a pair (train, test), each an ImageSet, a pair "
            f"(images, labels), a torch Dataset or a DataLoader; got {type(result).__name__}"
        )
    parts = []
    for part, obj in zip(("train", "test"), result, strict=True):
        try:
            parts.append(as_images_or_stream(obj))
        except DataError as error:
            raise DataError(f"{spec}(), {part} part: {error}") from error
    # A rare class may be missing from one part of unnamed labels: the longer list holds both.
    classes = max((data.classes for data in parts), key=len)
    train, test = (
        data if isinstance(obj, ImageSet) else replace(data, classes=classes)
        for data, obj in zip(parts, result, strict=True)
    )
    splits = DataSplits(spec, train, test)
    if isinstance(result[0], ImageSet):
        return splits
    return splits.with_normalization(train.measure())


def _module(place: str, spec: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _file_module(Path(place))
        here = str(Path.cwd())
        if here not in sys.path:
            # An installed command does not look in the current folder by itself; users expect it.
            sys.path.insert(0, here)
        return importlib.import_module(place)
    except DeepPruningError:
        raise
    except Exception as error:
        raise InputError(f"cannot import {place!r} for data {spec!r}: {describe_raised(error)}") from error


def _file_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}; data is given as file.py:function")
    name = f"deeppruning_user_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Registered under its name, so that dataclasses and worker processes can look it up.
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module
