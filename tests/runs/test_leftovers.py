"""What a killed run leaves behind is cleared away; what keeps two runs apart cannot be deleted."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from deeppruning.errors import RunError
from deeppruning.runs import History, RunFolder
from deeppruning.runs import lock as lock_module
from deeppruning.runs.leftovers import remove_leftovers, scratch_folder

KILLED = """
import sys, time
from pathlib import Path
from deeppruning.system.files import replace_atomically
from deeppruning.runs.leftovers import scratch_folder

def write(temporary):
    temporary.write_bytes(b"half")
    with scratch_folder() as folder:
        (folder / "checkpoint").write_bytes(b"half")
        print(folder, flush=True)
        time.sleep(600)

replace_atomically(Path(sys.argv[1]), write)
"""


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_resuming_clears_away_what_a_killed_process_left(tmp_path: Path, own_temporary: Path) -> None:
    run = tmp_path / "run"
    with RunFolder.create(run, {}):
        (run / "finetune").mkdir()
    before = sorted(path.name for path in run.iterdir())
    command = [sys.executable, "-c", KILLED, str(run / "finetune" / "candidate-1.safetensors")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        scratch = Path(process.stdout.readline().strip())
        with RunFolder.open(run):  # while its maker lives, nothing is touched
            assert len(list((run / "finetune").iterdir())) == 1
            assert (scratch / "checkpoint").read_bytes() == b"half"
        process.send_signal(signal.SIGKILL)
    assert scratch.exists()
    with RunFolder.open(run):
        pass
    assert list((run / "finetune").iterdir()) == []
    assert list(own_temporary.iterdir()) == []
    assert sorted(path.name for path in run.iterdir()) == before


def test_only_leftovers_are_removed(tmp_path: Path, own_temporary: Path) -> None:
    outside = tmp_path / ".a.0123abcd.partial"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a.partial", ".partial", ".a.xyz.partial", ".config.toml"):
        (run / name).touch()
    (run / ".link.0123abcd.partial").symlink_to(outside)
    (run / "folder").symlink_to(tmp_path)
    (own_temporary / "deeppruning-scratch-link").symlink_to(run)
    (own_temporary / "deeppruning-other").mkdir()
    with scratch_folder() as used:
        assert remove_leftovers(run) == []
        assert used.is_dir()
    assert not used.exists()
    assert outside.read_text() == "mine"
    assert len(list(run.iterdir())) == 6


def test_scratch_taken_for_a_leftover_before_it_is_locked_is_made_again(
    tmp_path: Path, own_temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, []

    def cleared_away_once(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            assert remove_leftovers(tmp_path) == [Path(made[0])]
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", cleared_away_once)
    with scratch_folder() as folder:
        assert folder.is_dir()
    assert [str(folder)] == made[1:]


def test_deleting_the_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {}):
        (tmp_path / "run" / "run.lock").unlink()
        for _ in range(2):
            with pytest.raises(RunError, match="is in use by another process"):
                RunFolder.open(tmp_path / "run")
    RunFolder.open(tmp_path / "run").close()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch, number: int) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock_module, "lock", refuse)  # no such file system can be mounted here
    with pytest.raises(RunError, match=r"has no locks.*choose a folder on another disk"):
        RunFolder.create(tmp_path / "run", {})


STRANGE_SCHEMAS = {
    "trigger": "CREATE TRIGGER spy AFTER INSERT ON facts BEGIN DELETE FROM evaluations; END",
    "view": "CREATE VIEW more AS SELECT * FROM facts",
    "table": "CREATE TABLE more (a)",
    "index": "CREATE INDEX more ON facts (value)",
    "column": "ALTER TABLE facts ADD COLUMN more TEXT",
    "no table": "DROP TABLE picks",
}


@pytest.mark.parametrize("kind", STRANGE_SCHEMAS)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_database_of_another_shape_is_refused(tmp_path: Path, kind: str, read_only: bool) -> None:
    path = tmp_path / "history.sqlite"
    with History(path) as history:
        history.set_fact("a", 1)
    with closing(sqlite3.connect(path)) as database:
        database.execute(STRANGE_SCHEMAS[kind])
        database.commit()
    with pytest.raises(RunError, match=r"history\.sqlite does not have the tables of a run"):
        History(path, read_only=read_only)


def test_a_view_in_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    History(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE facts")
        database.execute("CREATE VIEW facts AS SELECT 'original' AS key, load_extension('x') AS value")
        database.commit()
    with pytest.raises(RunError, match=r"tables of a run \(see its (table|view|index)"):
        History(path)


def test_functions_in_a_schema_are_not_trusted(tmp_path: Path) -> None:
    with History(tmp_path / "history.sqlite") as history:
        assert history._connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
