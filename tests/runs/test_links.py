"""A run folder may be a stranger's: no link in it leads a command to write, empty or delete elsewhere."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from cli_calls import call
from cli_search import trained
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.reporting.standing import in_use
from deeppruning.runs import RunFolder
from deeppruning.system.files import folder_within

COMMANDS = {
    "resume": ("resume", "RUN", "--quiet"),
    "finetune": ("finetune", "RUN", "--candidate", 1, "--epochs", 1, "--quiet"),
    "pick": ("pick", "RUN", "--target", "flops=90%", "--quiet"),
    "export": ("export", "RUN"),
    "export --int8": ("export", "RUN", "--int8"),
    "export --out": (
        "export",
        "RUN",
        "--format",
        "safetensors",
        "--out",
        "RUN/export/deeper/knee.safetensors",
    ),
    "bench": ("bench", "RUN", "--runs", 1, "--batch", 1),
    "report": ("report", "RUN"),
    "compare": (
        *("compare", "MODEL", "--weights", "WEIGHTS", "--data", "digits", "--match", "RUN"),
        *("--methods", "l1", "--images", 100, "--test-images", 50, "--finetune-epochs", 1, "--quiet"),
    ),
}
FILES = ("run.lock", "history.sqlite-journal", "history.sqlite-wal", "report.html")
PLANTED = ("lock", "other files", "folders")
FOLDERS = ("finetune", "plots", "export", "compare")


@pytest.fixture
def canaries(tmp_path: Path) -> dict[Path, bytes]:
    """Files of the user's, under the names that a run gives its own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    names = ("note.txt", "candidate-1.safetensors", "candidate-1.round-1", "teacher.round-1", "knee.onnx")
    names += ("knee-int8.onnx", ".a.0123abcd.partial", "population.svg", "results.json")
    for name in names:
        (folder / name).write_bytes(b"dear " + name.encode())
    return {path: path.read_bytes() for path in folder.iterdir()}


def unharmed(canaries: dict[Path, bytes]) -> bool:
    (folder,) = {path.parent for path in canaries}
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == canaries


def command(name: str, run: Path, spec: tuple[str, Path]) -> list[str]:
    if name == "resume":
        (run / "light.safetensors").unlink()  # so that there is something to go on with
    places = {"RUN": str(run), "MODEL": spec[0], "WEIGHTS": str(spec[1])}
    return [places.get(str(word), str(word).replace("RUN/", f"{run}/")) for word in COMMANDS[name]]


@pytest.fixture(scope="module")
def spec(finished_run: Path) -> tuple[str, Path]:
    return f"{finished_run.parent / 'nets.py'}:tiny", finished_run.parent / "base" / "model.safetensors"


@pytest.mark.parametrize(
    ("name", "planted"),
    # A comparison locks its own folder and not the run's.
    [(name, kind) for name in COMMANDS for kind in PLANTED if name != "compare" or kind == "folders"],
)
def test_planted_links_lead_nowhere(
    name: str, planted: str, finished_run: Path, spec: tuple[str, Path], tmp_path: Path, canaries
) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    note = tmp_path / "mine" / "note.txt"
    for file in {"lock": FILES[:1], "other files": FILES[1:], "folders": ()}[planted]:
        (run / file).unlink(missing_ok=True)
        (run / file).symlink_to(note)
    for folder in FOLDERS if planted == "folders" else ():
        shutil.rmtree(run / folder, ignore_errors=True)
        (run / folder).symlink_to(note.parent)
    try:
        call(*command(name, run, spec))
        refused = ""
    except DeepPruningError as error:
        refused = str(error)
    assert unharmed(canaries)
    if planted == "lock" and name in ("resume", "finetune", "pick"):
        assert f"{run / 'run.lock'} is a link" in refused
    if planted == "folders" and name != "bench":
        assert "is a link" in refused
        assert "invalid value" not in refused


@pytest.mark.parametrize("kind", ["dangling", "hard link", "text", "folder", "pipe", "link to an empty file"])
def test_a_lock_file_that_is_none_is_left_as_it_is(kind: str, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    RunFolder.create(run, {}).close()
    lock = run / "run.lock"
    lock.unlink()
    if kind == "dangling":
        lock.symlink_to(outside)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "text":
        lock.write_bytes(b"process of elimination")
    else:
        outside.write_bytes(b"" if "empty" in kind else b"dear")
        (os.link if kind == "hard link" else os.symlink)(outside, lock)
    before = outside.read_bytes() if outside.exists() else None
    assert not in_use(run)
    with pytest.raises(RunError, match=r"run\.lock"):
        RunFolder.open(run)
    assert (outside.read_bytes() if outside.exists() else None) == before
    assert kind != "text" or lock.read_bytes() == b"process of elimination"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_a_history_that_lies_elsewhere_is_not_written_to(kind: str, read_only: bool, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        with RunFolder.create(folder, {}) as made:
            made.history.set_fact("mine", folder == other)
    (run / "history.sqlite").unlink()
    (os.symlink if kind == "link" else os.link)(other / "history.sqlite", run / "history.sqlite")
    with RunFolder.open(run, read_only=read_only) as opened, pytest.raises(RunError, match="not written to"):
        opened.history.set_fact("mine", False)
    database = sqlite3.connect(other / "history.sqlite")
    assert database.execute("SELECT value FROM facts").fetchall() == [("true",)]
    database.close()


def test_a_folder_is_made_below_a_root_that_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    root = tmp_path / "runs"
    root.symlink_to(tmp_path / "disk")
    assert folder_within(root, root / "a" / "b").resolve() == tmp_path / "disk" / "a" / "b"
    (root / "c").symlink_to(tmp_path / "gone")
    with pytest.raises(RunError, match="c is a link"):
        folder_within(root, root / "c" / "d")
    assert not (tmp_path / "gone").exists()
    (root / "e").write_text("x")
    with pytest.raises(RunError, match=r"e is not a folder"):
        folder_within(root, root / "e")


def test_a_run_is_not_started_over_a_planted_lock(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("dear")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").symlink_to(tmp_path / "note.txt")
    model, weights = trained(tmp_path)
    with pytest.raises(RunError, match="is a link"):
        call("prune", model, "--weights", weights, "--data", "digits", "--out", tmp_path / "run", "--quiet")
    assert (tmp_path / "note.txt").read_text() == "dear"
