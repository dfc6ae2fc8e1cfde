"""Data by name, path and function, and the command that lists and checks it."""

import json
import pickle
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from click.testing import CliRunner

from data_files import write_idx, write_pictures
from deeppruning.cli.commands.data import data
from deeppruning.cli.options.inputs import DataOptions
from deeppruning.data.images import Normalization
from deeppruning.data.registry import DATA_SETS, list_data, load_data
from deeppruning.errors import DataError, InputError

OWN = """
import torch
from deeppruning.data.images import ImageSet
from deeppruning.data.splits import DataSplits

IMAGES = torch.arange(6 * 16, dtype=torch.uint8).view(6, 1, 4, 4)

def pair():
    return (IMAGES, [0, 1, 2, 0, 1, 2]), (IMAGES[:2], [0, 1])

def whole():
    half = ImageSet(IMAGES, torch.zeros(6).long(), ("only",))
    return DataSplits("mine", half, half)

def images_only():
    return IMAGES, IMAGES

def fails():
    return 1 / 0

number = 3
"""

BESIDE = """
import torch
from own_sizes import SIDE

class Blank(torch.utils.data.Dataset):
    targets = [0, 1, 0, 1]

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.zeros(1, SIDE, SIDE), self.targets[index]

def load():
    return Blank(), Blank()
"""


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch, tmp_path):
    """Run in an empty folder with an empty home, so that only what a test writes is found."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DEEPPRUNING_DATA", raising=False)


def test_names_are_found_in_the_documented_order(tmp_path, monkeypatch):
    for place in ("here/data", "home/.cache/deeppruning", "env", "given"):
        assert load_error("mnist")
        write_idx(tmp_path / place / "mnist", packed=True)
        if place == "env":
            monkeypatch.setenv("DEEPPRUNING_DATA", str(tmp_path / "env"))
        found = {
            status.data.name: status.path
            for status in list_data(tmp_path / "given" if place == "given" else None)
        }
        assert found["mnist"] is not None and found["mnist"].resolve() == tmp_path / place / "mnist"
        assert len(load_data("mnist", data_dir=tmp_path / place).train) == 20
        for file in (tmp_path / place / "mnist").iterdir():
            file.unlink()


def load_error(name: str) -> str:
    with pytest.raises(DataError) as caught:
        load_data(name)
    return str(caught.value)


def test_missing_data_says_where_it_was_looked_for_and_how_to_get_it():
    message = load_error("cifar10")
    for part in ("looked in data and", "cifar-10-batches-bin", "--download", "--data-dir"):
        assert part in message


def test_fashion_and_mnist_are_told_apart_by_folder(tmp_path):
    write_idx(tmp_path / "fashion-mnist", packed=False)
    assert load_data("fashion-mnist", data_dir=tmp_path / "fashion-mnist").train.classes[9] == "ankle boot"
    assert load_data("fashion-mnist", data_dir=tmp_path).name == "fashion-mnist"
    with pytest.raises(DataError):
        load_data("mnist", data_dir=tmp_path / "fashion-mnist")


def test_unknown_names_and_paths():
    with pytest.raises(InputError, match="did you mean cifar10"):
        load_data("cifar-10")
    with pytest.raises(DataError, match="no data set, folder or file 'some/where'"):
        load_data("some/where")
    Path("png").mkdir()
    with pytest.raises(InputError, match=r"no data set, folder or file 'pngg'; did you mean png\?"):
        load_data("pngg")
    Path("text.txt").write_text("x")
    with pytest.raises(DataError, match=r"text.txt is a file that is not .npz"):
        load_data("text.txt")


def test_folders_files_and_resizing():
    write_pictures(Path("photos"))
    assert load_data("photos", image_size=(7, 8)).train.image_shape == (3, 7, 8)
    np.savez("x.npz", images=np.zeros((10, 8, 8), np.uint8), labels=np.arange(10) % 2)
    splits = load_data("x.npz", image_size=4)
    assert (len(splits.train), splits.train.image_shape) == (8, (1, 4, 4))
    with pytest.raises(InputError, match="at least 1 pixel, got 0"):
        load_data("digits", image_size=0)


@pytest.mark.parametrize("place", ["own_data.py", "own_data"])
def test_own_functions_from_file_and_module(place):
    Path("own_data.py").write_text(OWN)
    pair = load_data(f"{place}:pair")
    assert pair.test.num_classes == 3 and (len(pair.train), len(pair.test)) == (6, 2)
    assert pair.test.normalization == pair.train.normalization is not None
    whole = load_data(f"{place}:whole")
    assert whole.name == "mine" and whole.train.normalization is None


def test_own_file_may_import_one_beside_it_and_its_classes_travel(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "own_sizes.py").write_text("SIDE = 5\n")
    (folder / "own_set.py").write_text(BESIDE)
    splits = load_data(f"{folder / 'own_set.py'}:load")
    assert (len(splits.train), splits.train.image_shape) == (4, (1, 5, 5))
    dataset = splits.train.source.dataset
    sent = cloudpickle.dumps(dataset)
    monkeypatch.delitem(sys.modules, type(dataset).__module__)  # as in a worker process
    assert len(pickle.loads(sent)) == 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("own.py:pear", "did you mean pair"),
        ("own.py:images_only", r"own.py:images_only\(\), train part: cannot take images from Tensor"),
        (
            "own.py:fails",
            r"fails\(\) raised ZeroDivisionError: division by zero \(.*own.py, line \d+\)",
        ),
        ("own.py:number", "'int', not a function"),
        ("none.py:load", "no file none.py"),
        ("no_such_module.inside:load", "no module 'no_such_module'"),
        ("broken.py:load", r"broken.py cannot be loaded.*no_such_library.*broken.py, line 1\)"),
    ],
)
def test_own_functions_that_do_not_work(spec, message):
    Path("own.py").write_text(OWN)
    Path("broken.py").write_text("import no_such_library\n")
    with pytest.raises((DataError, InputError), match=message):
        load_data(spec)


def test_options_override_the_normalisation():
    splits = DataOptions(data="digits", mean=(0.5,), std=(0.25,)).load()
    assert splits.test.normalization == Normalization((0.5,), (0.25,))
    with pytest.raises(InputError, match="go together"):
        DataOptions(data="digits", mean=(0.5,)).load()
    with pytest.raises(DataError, match="images of 1 channels cannot be normalised with 3"):
        DataOptions(data="digits", mean=(0.5,) * 3, std=(0.5,) * 3).load()


def test_command_lists_every_name(tmp_path):
    listed = CliRunner().invoke(data, ["--json"], catch_exceptions=False)
    records = json.loads(listed.output)
    assert [record["name"] for record in records] == list(DATA_SETS)
    assert next(record["name"] for record in records if record["found"]) == "digits"
    table = CliRunner().invoke(data, [], catch_exceptions=False)
    assert table.exit_code == 0 and all(name in table.output for name in DATA_SETS)


def test_command_shows_one_set():
    record = json.loads(CliRunner().invoke(data, ["digits", "--json"]).output)
    assert record["image_shape"] == [1, 8, 8] and sum(record["train"]["per_class"]) == 1437
    shown = CliRunner().invoke(data, ["digits", "--image-size", "4x6"], catch_exceptions=False)
    assert "1437 training, 360 test images" in shown.output and "4 x 6 pixels" in shown.output
    assert CliRunner().invoke(data, ["digits", "--image-size", "4xx"]).exit_code == 2
    assert isinstance(CliRunner().invoke(data, ["--download"]).exception, InputError)
