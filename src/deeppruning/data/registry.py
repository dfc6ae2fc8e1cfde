"""Data by name, folder, file or function: one call that finds it, checks it and splits it.

>>> len(load_data("digits").train)
1437
>>> load_data("cifar11")
Traceback (most recent call last):
    ...
deeppruning.errors.InputError: there is no data set, folder or file 'cifar11'; did you mean cifar10 or \
cifar100? Known data sets: cifar10, cifar100, digits, fashion-mnist, mnist
"""

import os
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from deeppruning.data.custom import load_custom
from deeppruning.data.folders import PictureForm, load_folder
from deeppruning.data.known import KNOWN, Found, KnownData, Say
from deeppruning.data.npz import load_npz
from deeppruning.data.splits import DataSplits
from deeppruning.errors import DataError, InputError

ENVIRONMENT = "DEEPPRUNING_DATA"


@dataclass(frozen=True)
class DataStatus:
    """Whether a named data set is at hand, and where it was looked for."""

    name: str
    about: str
    found: Path | None
    looked: tuple[Path, ...]
    looked_for: str
    how_to_get: str


def data_folders(data_dir: Path | str | None = None) -> tuple[Path, ...]:
    """Where named data is looked for: `data_dir`, or $DEEPPRUNING_DATA, or ./data and the user's cache."""
    if data_dir is not None:
        return (Path(data_dir),)
    if os.environ.get(ENVIRONMENT):
        return (Path(os.environ[ENVIRONMENT]),)
    return (Path("data"), Path.home() / ".cache" / "deeppruning")


def list_data(data_dir: Path | str | None = None) -> list[DataStatus]:
    """Every named data set with where it is, or where it was looked for and how to get it."""
    return [data_status(name, data_dir) for name in KNOWN]


def data_status(name: str, data_dir: Path | str | None = None) -> DataStatus:
    """The same for one name."""
    known = KNOWN.find(name)
    folders = data_folders(data_dir) + known.elsewhere
    found = _find(known, data_dir)
    return DataStatus(
        name, known.about, found.path if found else None, folders, known.looked_for, known.how_to_get
    )


def load_data(
    spec: str,
    *,
    data_dir: Path | str | None = None,
    download: bool = False,
    test_share: float = 0.2,
    seed: int = 0,
    image_size: int | tuple[int, int] | None = None,
    image_resize: int | None = None,
    loading_workers: int | None = None,
    say: Say | None = None,
) -> DataSplits:
    """Training and test images of `spec`.

    `spec` is, in this order, a name (see `list_data`), `package.module:function` or `file.py:function`
    (see `custom.load_custom`), a `.npz` file, or a folder of class folders. `test_share` and `seed`
    part those that come in one piece. `image_size` (a side, or height and width) resizes all images.
    `say` is told of downloads.

    Pictures of a folder are decoded when they are needed, by `loading_workers` processes (by default one for
    each thread of this one, 4 at most), unless they are few and small. They are resized until they cover
    `image_size` and cropped to it; with `image_resize` their shorter side becomes that long first, and
    training crops at random (256 with an image_size of 224 is customary).
    """
    size = _size(image_size)
    path = Path(spec)
    form = PictureForm(size, image_resize, loading_workers)
    if image_resize is not None and (spec in KNOWN or not path.is_dir()):
        raise InputError(f"image_resize is for folders of pictures, {spec!r} is none; give image_size alone")
    if spec in KNOWN:
        splits = _load_known(KNOWN[spec], data_dir, download, say or (lambda message: None))
    elif ":" in spec and not path.exists():
        splits = load_custom(spec)
    elif path.is_dir():
        return load_folder(path, test_share=test_share, seed=seed, wanted=form)
    elif path.suffix == ".npz" and path.is_file():
        splits = load_npz(path, test_share=test_share, seed=seed)
    elif path.exists():
        raise DataError(f"{spec} is a file that is not .npz; give a folder of class folders or a .npz file")
    else:
        is_path = path.suffix == ".npz" or len(path.parts) > 1
        raise (DataError if is_path else InputError)(_nothing_there(spec, path))
    return splits.resized(*size) if size else splits


def _load_known(known: KnownData, data_dir: Path | str | None, download: bool, say: Say) -> DataSplits:
    found = _find(known, data_dir)
    if found is None and download and known.download is not None:
        folders = data_folders(data_dir)
        # The first folder, unless it is only the customary ./data that this user does not have.
        target = folders[0] if len(folders) == 1 or folders[0].is_dir() else folders[-1]
        known.download(target, say)
        found = _find(known, target)
    if found is None:
        looked = " and ".join(str(folder) for folder in data_folders(data_dir) + known.elsewhere)
        raise DataError(
            f"data set {known.name!r} is not at hand: looked in {looked} for {known.looked_for}. "
            f"To get it: {known.how_to_get}. Another folder is given with --data-dir or ${ENVIRONMENT}"
        )
    return found.load()


def _nothing_there(spec: str, path: Path) -> str:
    """That there is nothing of this name, and what there is under nearly the same."""
    try:
        beside = {str(path.with_name(one.name)) for one in path.parent.iterdir()}
    except OSError:
        beside = set()
    near = get_close_matches(spec, [*KNOWN, *sorted(beside)])
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"there is no data set, folder or file {spec!r}{hint} Known data sets: {', '.join(sorted(KNOWN))}"


def _find(known: KnownData, data_dir: Path | str | None) -> Found | None:
    for folder in data_folders(data_dir) + known.elsewhere:
        found = known.find(folder)
        if found is not None:
            return found
    return None


def _size(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if image_size is None:
        return None
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if len(size) != 2 or min(size) < 1:
        raise InputError(
            f"image_size must be a side or (height, width) of at least 1 pixel, got {image_size}"
        )
    return size
