"""Whatever happens to a file, its reader ends in one of our errors, which names it, or in its contents."""

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from damage import damaged_bytes, damaged_tree, database_edits, without_null
from deeppruning.errors import LONGEST_MESSAGE, DeepPruningError
from deeppruning.system.toml import parse_toml
from loaders import LOADERS, NAMED_BY_THE_CALLER, Loader, rewrite_metadata

QUICK = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
THOROUGH = settings(QUICK, max_examples=500, derandomize=False)
JSON = ("comparison", "labels")
TOML = ("config.toml", "train.toml", "comparison's options")
DESCRIBED = (
    "fine-tuned",
    "unsigned solution",
    "zoo solution",
    "exported",
    "safetensors",
    "checkpoint",
    "proposal",
)


def check(name: str, loader: Loader, change) -> None:
    """Damage a copy of the whole folder and read it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(loader.whole(), Path(folder) / "copy"))
        change(copy / loader.file)
        try:
            loader.load(copy)
        except DeepPruningError as error:
            text = str(error)
            assert loader.file.rpartition("/")[2] in text or str(copy) in text or name in NAMED_BY_THE_CALLER
            assert len(text) <= LONGEST_MESSAGE + 5


def damage_bytes(name: str, data: st.DataObject) -> None:
    loader = LOADERS[name]
    content = data.draw(damaged_bytes((loader.whole() / loader.file).read_bytes()))
    check(name, loader, lambda path: path.write_bytes(content))


def damage_values(name: str, data: st.DataObject) -> None:
    loader = LOADERS[name]
    text = (loader.whole() / loader.file).read_bytes()
    if name in TOML:
        tree = without_null(data.draw(damaged_tree(parse_toml(text.decode()), null=False)))
        content = tomli_w.dumps(tree).encode()
    else:
        content = json.dumps(data.draw(damaged_tree(json.loads(text)))).encode()
    check(name, loader, lambda path: path.write_bytes(content))


def damage_metadata(name: str, data: st.DataObject) -> None:
    def change(metadata: dict[str, str]) -> dict[str, str]:
        parsed = {key: as_value(text) for key, text in sorted(metadata.items())}
        changed = data.draw(damaged_tree(parsed))
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in changed.items()}

    check(name, LOADERS[name], lambda path: rewrite_metadata(path, change))


def as_value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def damage_database(data: st.DataObject) -> None:
    loader = LOADERS["history.sqlite"]
    edits = data.draw(database_edits(loader.whole() / loader.file))

    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            for statement, values in edits:
                try:
                    database.execute(statement, values)
                except sqlite3.IntegrityError:
                    continue  # what SQLite itself does not take cannot be in a file
            database.commit()

    check("history.sqlite", loader, change)


@pytest.mark.parametrize("name", LOADERS)
def test_the_whole_file_is_read(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(LOADERS[name].whole(), Path(folder) / "copy"))
        if name == "zoo solution":
            with pytest.raises(DeepPruningError, match="does not belong to this network"):
                LOADERS[name].load(copy)  # its weights are of another network: the rebuilding is tried here
        else:
            LOADERS[name].load(copy)


@pytest.mark.parametrize("name", LOADERS)
@QUICK
@given(data=st.data())
def test_damaged_bytes(name: str, data: st.DataObject) -> None:
    damage_bytes(name, data)


@pytest.mark.parametrize("name", [*JSON, *TOML])
@QUICK
@given(data=st.data())
def test_strange_values(name: str, data: st.DataObject) -> None:
    damage_values(name, data)


@pytest.mark.parametrize("name", DESCRIBED)
@QUICK
@given(data=st.data())
def test_strange_metadata(name: str, data: st.DataObject) -> None:
    damage_metadata(name, data)


@settings(QUICK, max_examples=20)
@given(data=st.data())
def test_strange_histories(data: st.DataObject) -> None:
    damage_database(data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LOADERS)
@THOROUGH
@given(data=st.data())
def test_damaged_bytes_thoroughly(name: str, data: st.DataObject) -> None:
    damage_bytes(name, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*JSON, *TOML])
@THOROUGH
@given(data=st.data())
def test_strange_values_thoroughly(name: str, data: st.DataObject) -> None:
    damage_values(name, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DESCRIBED)
@THOROUGH
@given(data=st.data())
def test_strange_metadata_thoroughly(name: str, data: st.DataObject) -> None:
    damage_metadata(name, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(THOROUGH, max_examples=3000)
@given(data=st.data())
def test_strange_histories_thoroughly(data: st.DataObject) -> None:
    damage_database(data)


ARTEFACTS = ("solution", "safetensors", "checkpoint", "proposal", "state")


@pytest.mark.parametrize("name", ARTEFACTS)
@pytest.mark.parametrize("place", [-1, -5, -9])
def test_a_flipped_bit_of_a_weight_is_noticed(name: str, place: int, tmp_path: Path) -> None:
    loader = LOADERS[name]
    copy = Path(shutil.copytree(loader.whole(), tmp_path / "copy"))
    content = bytearray((copy / loader.file).read_bytes())
    content[place] ^= 1
    (copy / loader.file).write_bytes(content)
    with pytest.raises(DeepPruningError, match=r"does not match its own checksum"):
        loader.load(copy)


def test_a_changed_digit_of_a_cut_is_noticed(tmp_path: Path) -> None:
    loader = LOADERS["solution"]
    copy = Path(shutil.copytree(loader.whole(), tmp_path / "copy"))
    content = (copy / loader.file).read_bytes()
    changed = content.replace(b"[[0,1,2,3,5]", b"[[0,1,2,4,5]").replace(b"[0,1,2,3,5]", b"[0,1,2,4,5]")
    assert changed != content
    (copy / loader.file).write_bytes(changed)
    with pytest.raises(DeepPruningError, match="does not match its own checksum"):
        loader.load(copy)


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parent / "bombs.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    *outcomes, megabytes = done.stdout.split()
    assert done.returncode == 0, done.stderr
    assert outcomes == [
        *["DataError"] * 2,
        "WeightsError",
        *["DataError"] * 4,
        *["WeightsError"] * 2,
        *["DataError"] * 2,
    ]
    assert int(megabytes) < 200
