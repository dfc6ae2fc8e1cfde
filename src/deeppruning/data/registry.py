"""Data by name, folder, file or function: one call that finds it, checks it and splits it.

>>> len(load_data("digits").train)
1437
>>> load_data("cifar11")
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: there is no data set, folder or file 'cifar11'; did you mean cifar10 or \
cifar100? Known data sets: cifar10, cifar100, digits, fashion-mnist, mnist
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from deeppruning.data.convert import as_images
from deeppruning.data.folders import PictureForm, load_folder
from deeppruning.data.images import ImageSet
from deeppruning.data.npz import load_npz
from deeppruning.data.splits import DataSplits
from deeppruning.errors import DataError, InputError
from deeppruning.options import DATA, Options, option
from deeppruning.registry import Registry
from deeppruning.system.user_code import load_function, user_errors

ENVIRONMENT = "DEEPPRUNING_DATA"
LONGEST_SIDE = 1 << 13  # pixels of an image: 200 MB
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DataSource(Options):
    """The data as a user names it: the options of `load_data`, and the normalisation."""

    data: str = option(
        "digits", "Name of a data set (see `deeppruning data`), folder with one folder per class, .npz file, "
        "package.module:function or file.py:function.", heading=DATA, common=True, metavar="DATA",
    )  # fmt: skip
    data_dir: Path | None = option(
        None, "Folder with data sets.", heading=DATA, common=True,
        default_text=f"${ENVIRONMENT}, or ./data and ~/.cache/deeppruning",
    )  # fmt: skip
    download: bool = option(False, "Download the data set if it is not in the data folder.", heading=DATA)
    image_size: tuple[int, int] | None = option(
        None, "Resize all images to this size; pictures of a folder keep their proportions and are cropped.",
        heading=DATA, low=1, high=LONGEST_SIDE, common=True, metavar="SIDE|HxW",
    )  # fmt: skip
    image_resize: int | None = option(
        None, "Shorter side of pictures of a folder before they are cropped to --image-size, at random in "
        "training and at the centre otherwise.", heading=DATA, low=1, high=LONGEST_SIDE, metavar="SIDE",
        default_text="that of --image-size",
    )  # fmt: skip
    loading_workers: int | None = option(
        None, "Number of processes that decode pictures for each process that trains or evaluates.",
        heading=DATA, default_text="the number of threads of that process, at most 4",
    )  # fmt: skip
    mean: tuple[float, ...] | None = option(
        None, "Mean of each channel, for pixels in 0..1, instead of the data set's; needs --std.",
        heading=DATA, low=-math.inf, metavar="M,M,M",
    )  # fmt: skip
    std: tuple[float, ...] | None = option(
        None,
        "Standard deviation of each channel, for pixels in 0..1; needs --mean.",
        heading=DATA,
        metavar="S,S,S",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mean is None) != (self.std is None):
            raise InputError("--mean and --std go together; give both or none")


@dataclass(frozen=True)
class DataLocation:
    """Where a data set is, and the call that loads it from there."""

    path: Path
    load: Callable[[], DataSplits]


@dataclass(frozen=True)
class NamedData:
    """A data set with a name: how to find it in a data folder, and how to get it."""

    name: str
    about: str
    looked_for: str
    how_to_get: str
    find: Callable[[Path], DataLocation | None]
    elsewhere: tuple[Path, ...] = ()  # folders to search after the user's
    download: Callable[[Path, Say], None] | None = None  # into a data folder, reporting its progress


# Filled by the files of `data/sets/`.
DATA_SETS: Registry[NamedData] = Registry("data set", "deeppruning.data.sets")


@dataclass(frozen=True)
class DataStatus:
    """Whether a named data set is available, and where it was searched for."""

    data: NamedData
    path: Path | None  # None if it was not found
    searched: tuple[Path, ...]


def data_folders(data_dir: Path | str | None = None) -> tuple[Path, ...]:
    """Where named data is searched for: `data_dir`, or $DEEPPRUNING_DATA, or ./data and the user's cache."""
    if data_dir is not None:
        return (Path(data_dir),)
    if os.environ.get(ENVIRONMENT):
        return (Path(os.environ[ENVIRONMENT]),)
    return (Path("data"), Path.home() / ".cache" / "deeppruning")


def list_data(data_dir: Path | str | None = None) -> list[DataStatus]:
    """The status of every named data set."""
    return [data_status(name, data_dir) for name in DATA_SETS]


def data_status(name: str, data_dir: Path | str | None = None) -> DataStatus:
    """The status of one named data set."""
    data = DATA_SETS.find(name)
    location = _find_named_data(data, data_dir)
    return DataStatus(data, location.path if location else None, data_folders(data_dir) + data.elsewhere)


def load_data(
    spec: str,
    *,
    data_dir: Path | str | None = None,
    download: bool = False,
    image_size: int | tuple[int, int] | None = None,
    image_resize: int | None = None,
    loading_workers: int | None = None,
    say: Say | None = None,
) -> DataSplits:
    """Training and test images of `spec`.

    `spec` is, in this order, a name (see `list_data`), `package.module:function` or `file.py:function`
    (called without arguments, it returns `DataSplits` or a pair (train, test)), a `.npz` file, or a folder of
    class folders. Of data without a test part, a fifth of every class becomes one, always the same.
    `image_size` (a side, or height and width) resizes all images. `say` is called with messages about
    downloads.

    Pictures of a folder are decoded when they are needed, by `loading_workers` processes (by default one per
    thread of this one, at most 4), unless they are few and small. They are resized until they cover
    `image_size` and cropped to it; with `image_resize` their shorter side becomes that long first, and
    training takes random crops (256 with an image_size of 224 is customary).
    """
    size = _checked_image_size(image_size)
    path = Path(spec)
    form = PictureForm(size, image_resize, loading_workers)
    if image_resize is not None and (spec in DATA_SETS or not path.is_dir()):
        raise InputError(
            f"image_resize is for folders of pictures, and {spec!r} is not one; give image_size alone"
        )
    if spec in DATA_SETS:
        splits = _load_named_data(DATA_SETS[spec], data_dir, download, say or (lambda message: None))
    elif ":" in spec and not path.exists():
        splits = _load_from_function(spec)
    elif path.is_dir():
        return load_folder(path, form)
    elif path.suffix == ".npz" and path.is_file():
        splits = load_npz(path)
    elif path.exists():
        raise DataError(f"{spec} is a file that is not .npz; give a folder of class folders or a .npz file")
    else:
        is_path = path.suffix == ".npz" or len(path.parts) > 1
        raise (DataError if is_path else InputError)(_nothing_there(spec, path))
    return splits.resized(*size) if size else splits


def _load_named_data(data: NamedData, data_dir: Path | str | None, download: bool, say: Say) -> DataSplits:
    """A data set with a name: found, or downloaded if that is allowed, then loaded."""
    location = _find_named_data(data, data_dir)
    if location is None and download and data.download is not None:
        folders = data_folders(data_dir)
        # The first folder, unless it is the default ./data and this user does not have it.
        target = folders[0] if len(folders) == 1 or folders[0].is_dir() else folders[-1]
        data.download(target, say)
        location = _find_named_data(data, target)
    if location is None:
        looked = " and ".join(str(folder) for folder in data_folders(data_dir) + data.elsewhere)
        raise DataError(
            f"data set {data.name!r} was not found: looked in {looked} for {data.looked_for}. "
            f"To get it: {data.how_to_get}. Give another folder with --data-dir or ${ENVIRONMENT}"
        )
    return location.load()


def _find_named_data(data: NamedData, data_dir: Path | str | None) -> DataLocation | None:
    locations = map(data.find, data_folders(data_dir) + data.elsewhere)
    return next((location for location in locations if location is not None), None)


def _load_from_function(spec: str) -> DataSplits:
    """Call a function of the user's; each part it returns is anything that `as_images` accepts.

    uint8 arrays get the normalisation measured on the training images; an ImageSet keeps its own.
    """
    function = load_function(spec, "data")
    with user_errors(f"{spec}()", DataError):
        result = function()
    if isinstance(result, DataSplits):
        return result
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise DataError(
            f"{spec}() must return DataSplits or a pair (train, test), each an ImageSet, a pair "
            f"(images, labels), a torch Dataset or a DataLoader; got {type(result).__name__}"
        )
    parts = []
    for name, obj in zip(("train", "test"), result, strict=True):
        try:
            parts.append(as_images(obj))
        except DataError as error:
            raise DataError(f"{spec}(), {name} part: {error}") from error
    # A rare class may be missing from one part of unnamed labels: the longer list holds both.
    classes = max((data.classes for data in parts), key=len)
    train, test = (
        data if isinstance(obj, ImageSet) else replace(data, classes=classes)
        for data, obj in zip(parts, result, strict=True)
    )
    splits = DataSplits(spec, train, test)
    return splits if isinstance(result[0], ImageSet) else splits.with_normalization(train.measure())


def _nothing_there(spec: str, path: Path) -> str:
    """The message for a name that does not exist, with similar ones that do."""
    try:
        beside = {str(path.with_name(entry.name)) for entry in path.parent.iterdir()}
    except OSError:
        beside = set()
    near = get_close_matches(spec, [*DATA_SETS, *sorted(beside)])
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    names = ", ".join(sorted(DATA_SETS))
    return f"there is no data set, folder or file {spec!r}{hint} Known data sets: {names}"


def _checked_image_size(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if image_size is None:
        return None
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if len(size) != 2 or min(size) < 1:
        raise InputError(
            f"image_size must be a side or (height, width) of at least 1 pixel, got {image_size}"
        )
    return size
