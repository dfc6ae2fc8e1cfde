"""Run folders and their history: what is written comes back, and nothing interrupts it halfway."""

import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.runs import EpochRow, Evaluation, History, RunFolder, Status, pack_genome, unpack_genome
from deeppruning.runs.database import FORMAT, connect, transaction
from deeppruning.system.files import replace_atomically, write_atomically
from deeppruning.version import __version__


def evaluation(genome, **changes):
    values = {
        "error": 0.25,
        "cost": 5e7,
        "flops": 50_000_000,
        "params": 70_000,
        "seconds": 1.5,
        "worker": "here:1",
    }
    return Evaluation(genome=np.asarray(genome, dtype=bool), **(values | changes))


@pytest.fixture
def history(tmp_path):
    with History(tmp_path / "history.sqlite") as history:
        yield history


@given(arrays(bool, st.integers(1, 70)))
def test_genomes_survive_packing(genome):
    packed = pack_genome(genome)
    assert len(packed) == -(-len(genome) // 8)
    assert (unpack_genome(packed, len(genome)) == genome).all()


def test_a_packed_genome_of_another_length_is_refused():
    with pytest.raises(RunError, match="17 genes takes 3 bytes, got 2"):
        unpack_genome(b"ab", 17)


class TestHistory:
    def test_an_evaluation_comes_back_and_the_first_one_stays(self, history):
        genome = np.array([True, False, True, True, False, True, True, True, False])
        history.record_evaluation(evaluation(genome, flops=np.int64(7), error=np.float32(0.5), detail="why"))
        history.record_evaluation(evaluation(genome, error=0.9))
        found = history.evaluation(genome)
        assert (found.error, found.cost, found.flops, found.params) == (0.5, 5e7, 7, 70_000)
        assert (found.seconds, found.worker, found.status, found.detail) == (1.5, "worker 1", "ok", "why")
        assert (found.genome == genome).all() and found.finished_at.endswith("+00:00")
        assert history.evaluation(~genome) is None

    def test_candidates_join_their_evaluations(self, history):
        first, second = np.ones(9, dtype=bool), np.arange(9) % 2 == 0
        history.record_generation(1, [(0, first), (1, second), (2, first)])
        history.record_evaluation(evaluation(first, status="diverged", error=None, cost=None))
        rows = history.candidates()
        assert [(row.id, row.generation) for row in rows] == [(0, 1), (1, 1), (2, 1)]
        assert [row.evaluation.status if row.evaluation else None for row in rows] == [
            "diverged",
            None,
            "diverged",
        ]
        assert (rows[1].genome == second).all()

    def test_a_generation_may_be_repeated_but_not_changed(self, history):
        genome = np.ones(5, dtype=bool)
        history.record_generation(1, [(0, genome)])
        history.record_generation(1, [(0, genome), (1, ~genome)])
        assert len(history.candidates()) == 2
        with pytest.raises(RunError, match="candidate 1 of generation 1 is not the one recorded"):
            history.record_generation(1, [(1, genome), (2, genome)])
        with pytest.raises(RunError, match="candidate 0 of generation 2 is not the one recorded"):
            history.record_generation(2, [(0, genome)])
        assert [(row.id, row.generation) for row in history.candidates()] == [(0, 1), (1, 1)]

    def test_a_transaction_that_fails_leaves_nothing(self, tmp_path):
        connection = connect(tmp_path / "history.sqlite")
        for error in (KeyboardInterrupt, sqlite3.IntegrityError):
            with pytest.raises(error), transaction(connection):
                connection.execute("INSERT INTO facts VALUES ('half', '1')")
                raise error
            assert connection.execute("SELECT count(*) FROM facts").fetchone() == (0,)
            assert not connection.in_transaction
        with transaction(connection):
            connection.execute("INSERT INTO facts VALUES ('whole', '1')")
        assert connection.execute("SELECT key FROM facts").fetchall() == [("whole",)]
        connection.close()

    @pytest.mark.parametrize("status", ["diverged", "failed"])
    def test_what_came_to_nothing_has_no_figures(self, history, status):
        genome = np.ones(9, dtype=bool)
        for figures in ({"error": 1.0}, {"cost": 0.0}, {"error": 1.0, "cost": 1e9}):
            with pytest.raises(InputError, match=f"a candidate that {status} has no (error|cost)"):
                evaluation(genome, **{"error": None, "cost": None, "status": status, **figures})
        lost = {"error": None, "cost": None, "status": status, "detail": "Traceback:\n  ...\nNo: luck\n"}
        history.record_evaluation(evaluation(genome, **lost))
        found = history.evaluation(genome)
        assert (found.error, found.cost, found.status, found.reason) == (
            None,
            None,
            Status(status),
            "No: luck",
        )
        assert np.isnan(found.objectives).all()
        raw = sqlite3.connect(history.path).execute("SELECT error, cost, status FROM evaluations").fetchall()
        assert raw == [(None, None, status)]

    def test_picks_epochs_and_facts_come_back(self, history):
        history.record_picks(1, {"knee": 4, "heavy": 0, "light": 9})
        history.record_picks(2, {"knee": 4, "heavy": 11, "light": 9})
        assert history.picks() == {
            1: {"heavy": 0, "knee": 4, "light": 9},
            2: {"heavy": 11, "knee": 4, "light": 9},
        }
        assert history.snapshot()["picks"] == history.picks()
        light = EpochRow("light", 0, 2.5, 0.7, 0.8, 0.01, 1.0)
        rows = [EpochRow("knee", 0, 1.5, 0.5, None, 0.01, 2.0), light]
        for row in [EpochRow("knee", 0, 9.0, 0.9, 0.9, 0.9, 9.0), *rows]:
            history.record_epoch(row)
        assert history.epochs("knee") == rows[:1]
        assert history.epochs() == rows
        history.set_fact("shared", {"flops": 12, "error": 0.1})
        history.set_fact("shared", {"flops": 13, "error": None})
        assert history.get_fact("shared") == {"flops": 13, "error": None}
        assert history.get_fact("missing", 5) == 5
        assert history.facts() == {"shared": {"flops": 13, "error": None}}

    def test_a_snapshot_holds_everything(self, history):
        genome = np.array([True, False, True])
        history.record_generation(1, [(0, genome), (1, ~genome)])
        history.record_evaluation(evaluation(genome))
        history.record_picks(1, {"knee": 0})
        snapshot = history.snapshot()
        done, waiting = snapshot["candidates"]
        assert (done.genome.tolist(), done.train_error) == ([True, False, True], 0.25)
        assert (waiting.id, waiting.generation, waiting.operator, waiting.parents) == (1, 1, "", ())
        assert (waiting.genome.tolist(), waiting.evaluation) == ([False, True, False], None)
        assert snapshot["picks"] == {1: {"knee": 0}}
        assert (snapshot["epochs"], snapshot["facts"]) == ([], {})
        history.set_fact("still", "writable")

    @pytest.mark.parametrize(
        "changes", [{"error": float("nan")}, {"cost": float("inf")}, {"error": None}, {"status": "fine"}]
    )
    def test_values_a_history_cannot_hold_are_refused(self, changes):
        with pytest.raises(InputError):
            evaluation([True], **changes)

    def test_facts_must_be_json(self, history):
        for value in (float("nan"), {1, 2}):
            with pytest.raises(InputError, match="must be a JSON value"):
                history.set_fact("bad", value)

    def test_a_reader_sees_commits_and_cannot_write(self, history):
        with History(history.path, read_only=True) as reader:
            history.set_fact("a", 1)
            assert reader.get_fact("a") == 1
            with pytest.raises(RunError, match="cannot be written"):
                reader.set_fact("a", 2)
        assert history.get_fact("a") == 1

    def test_reading_what_is_not_there_is_explained_and_makes_nothing(self, tmp_path):
        with pytest.raises(RunError, match="not evaluated anything yet"):
            History(tmp_path / "none.sqlite", read_only=True)
        assert list(tmp_path.iterdir()) == []

    def test_damage_is_found_when_opening(self, tmp_path):
        path = tmp_path / "history.sqlite"
        with History(path) as history:
            history.record_generation(1, [(i, np.arange(4000) % (i + 2) == 0) for i in range(200)])
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + b"\xff" * 8192 + whole[12288:])
        with pytest.raises(RunError, match="damaged"):
            History(path)
        path.write_bytes(b"no database at all, but long enough to be looked at" * 20)
        with pytest.raises(RunError, match="not a database"):
            History(path)

    @pytest.mark.parametrize("version", [3, 99])
    def test_foreign_databases_and_other_formats_are_refused(self, tmp_path, version):
        path = tmp_path / "history.sqlite"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE songs (name)")
        connection.commit()
        with pytest.raises(RunError, match="not the history of a run"):
            History(path)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        with pytest.raises(RunError, match=f"format {version}, .* format {FORMAT}: .* new run"):
            History(path)

    def test_a_process_killed_while_writing_loses_nothing_it_had_confirmed(self, tmp_path):
        path = tmp_path / "history.sqlite"
        script = textwrap.dedent(
            """
            import sys
            from pathlib import Path
            import numpy as np
            from deeppruning.runs import Evaluation, History
            history = History(Path(sys.argv[1]))
            number = len(history.candidates()) // 5
            while True:
                genomes = [np.random.default_rng([number, i]).random(3000) < 0.5 for i in range(5)]
                history.record_generation(number, [(number * 5 + i, genomes[i]) for i in range(5)])
                history.record_evaluation(Evaluation(genome=genomes[0], error=0.5, cost=1.0, flops=1,
                                                     params=1, seconds=0.0, worker="w"))
                print(number, flush=True)
                number += 1
            """
        )
        for lines in (1, 9):
            with subprocess.Popen(
                [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
            ) as process:
                confirmed = [int(process.stdout.readline()) for _ in range(lines)]
                process.kill()
                confirmed += [int(line) for line in process.stdout]
            with History(path, read_only=True) as history:
                rows = history.candidates()
            assert len(rows) % 5 == 0 and len(rows) >= 5 * (confirmed[-1] + 1)
            assert [row.id for row in rows] == list(range(len(rows)))
            expected = np.random.default_rng([confirmed[-1], 0]).random(3000) < 0.5
            assert (rows[5 * confirmed[-1]].genome == expected).all()
            assert rows[5 * confirmed[-1]].evaluation.error == 0.5

    def test_a_full_disk_is_explained_and_loses_nothing(self, tmp_path):
        path = tmp_path / "history.sqlite"
        with History(path) as history:
            pages = history._connection.execute("PRAGMA page_count").fetchone()[0]
            history._connection.execute(f"PRAGMA max_page_count = {pages + 3}")
            history.set_fact("small", 1)
            with pytest.raises(RunError, match="the disk is full; free some space and resume"):
                history.set_fact("large", "x" * 100_000)
            assert history.facts() == {"small": 1}
        with History(path) as history:
            history.set_fact("large", "x" * 100_000)

    def test_a_disk_that_refuses_to_write_is_explained_and_loses_nothing(self, tmp_path):
        path = tmp_path / "history.sqlite"
        with History(path) as history:
            history.set_fact("small", 1)
            with (
                limited_file_size(path.stat().st_size),
                pytest.raises(RunError, match="nothing recorded so far"),
            ):
                history.set_fact("large", "x" * 100_000)
            assert history.facts() == {"small": 1}
            history.set_fact("after", 2)
        with History(path) as history:
            assert history.facts() == {"after": 2, "small": 1}


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 300 kB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a tiny disk needs root")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_run_on_a_full_disk_keeps_what_it_has_and_goes_on_when_there_is_room(tiny_disk):
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 150_000)
    with RunFolder.create(tiny_disk / "run", {"model": {"name": "vgg16"}}) as run:
        kept = 0
        with pytest.raises(RunError, match="the disk is full; free some space and resume"):
            while True:
                run.history.set_fact(f"fact {kept}", "x" * 5000)
                kept += 1
        assert kept > 0 and len(run.history.facts()) == kept
        with pytest.raises(RunError, match=r"the disk is full.*previous file is untouched"):
            write_atomically(run.path / "config.toml", b"x" * 200_000)
    with pytest.raises(RunError, match="the disk is full"):
        RunFolder.create(tiny_disk / "other", {"model": {"name": "x" * 200_000}})
    ballast.unlink()
    with RunFolder.open(tiny_disk / "run") as run:
        assert run.config == {"model": {"name": "vgg16"}}
        run.history.set_fact("more", "x" * 5000)
        assert len(run.history.facts()) == kept + 1


class limited_file_size:
    """No file of this process may grow beyond so many bytes: a real refusal by the system."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)


class TestAtomicWriting:
    def test_a_write_replaces_the_whole_file(self, tmp_path):
        path = tmp_path / "a.bin"
        write_atomically(path, b"old and long")
        write_atomically(path, b"new")
        assert path.read_bytes() == b"new"
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]

    def test_permissions_follow_the_umask_whatever_the_writer_does(self, tmp_path):
        def private(temporary):
            temporary.unlink()
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))

        plain = tmp_path / "plain"
        plain.touch()
        replace_atomically(tmp_path / "a", private)
        assert (tmp_path / "a").stat().st_mode == plain.stat().st_mode

    def test_a_refusing_disk_leaves_the_old_file_and_no_other(self, tmp_path):
        path = tmp_path / "a.bin"
        write_atomically(path, b"old")
        with (
            limited_file_size(1000),
            pytest.raises(RunError, match=r"size limit.*previous file is untouched"),
        ):
            write_atomically(path, b"x" * 5000)
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.bin"]

    def test_a_full_disk_is_explained(self, tmp_path):
        def full(temporary):
            temporary.write_bytes(b"part")
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(RunError, match="the disk is full; free some space"):
            replace_atomically(tmp_path / "a", full)
        assert list(tmp_path.iterdir()) == []

    def test_other_errors_of_the_writer_pass_through(self, tmp_path):
        def failing(temporary):
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            replace_atomically(tmp_path / "a", failing)
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_folder_is_explained(self, tmp_path):
        with pytest.raises(RunError, match="No such file or directory"):
            write_atomically(tmp_path / "none" / "a", b"")


CONFIG = {
    "search": SearchConfig(exclude=("stem",)).to_table(),
    "finetune": FinetuneConfig().to_table(),
    "model": {"name": "resnet20", "weights": None},
}


class TestRunFolder:
    def test_options_come_back(self, tmp_path):
        with RunFolder.create(tmp_path / "deep" / "run", CONFIG):
            pass
        with RunFolder.open(tmp_path / "deep" / "run") as run:
            assert SearchConfig.from_table(run.config["search"]) == SearchConfig(exclude=("stem",))
            assert FinetuneConfig.from_table(run.config["finetune"]) == FinetuneConfig()
            assert run.config["model"] == {"name": "resnet20"}
            assert run.version == __version__
            assert run.solution("knee") == tmp_path / "deep" / "run" / "knee.safetensors"

    def test_history_is_kept_with_the_run_and_readable_while_it_is_written(self, tmp_path):
        with RunFolder.create(tmp_path, {}) as run, RunFolder.open(tmp_path, read_only=True) as reader:
            run.history.set_fact("a", 1)
            assert reader.history.get_fact("a") == 1
        with RunFolder.open(tmp_path) as run:
            assert run.history.get_fact("a") == 1

    def test_only_one_process_may_work_on_a_run(self, tmp_path):
        script = textwrap.dedent(
            """
            import sys
            from deeppruning.errors import RunError
            from deeppruning.runs import RunFolder
            try:
                RunFolder.open(sys.argv[1])
            except RunError as error:
                print(error)
            """
        )

        def other_process():
            command = [sys.executable, "-c", script, str(tmp_path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        with RunFolder.create(tmp_path, CONFIG):
            assert f"in use by process {os.getpid()} on " in other_process()
            with pytest.raises(RunError, match="in use by process"):
                RunFolder.open(tmp_path)
        assert other_process() == ""

    def test_a_killed_process_gives_up_its_lock(self, tmp_path):
        script = (
            "import sys, time; from deeppruning.runs import RunFolder; "
            "run = RunFolder.create(sys.argv[1], {}); print('locked', flush=True); time.sleep(600)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == b"locked\n"
            with pytest.raises(RunError, match=f"process {process.pid} on .* since 20"):
                RunFolder.open(tmp_path)
            process.kill()
        with RunFolder.open(tmp_path) as run:
            assert run.config == {}

    def test_a_run_is_not_created_twice(self, tmp_path):
        with RunFolder.create(tmp_path, CONFIG):
            pass
        before = (tmp_path / "config.toml").read_bytes()
        with pytest.raises(RunError, match=r"already holds a run; continue it with `[^`]*deeppruning resume"):
            RunFolder.create(tmp_path, {})
        assert (tmp_path / "config.toml").read_bytes() == before

    def test_a_folder_with_other_files_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(RunError, match=r"not empty \(it holds thesis.txt\)"):
            RunFolder.create(tmp_path, CONFIG)
        assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]
        with pytest.raises(RunError, match=r"thesis\.txt cannot be created"):
            RunFolder.create(tmp_path / "thesis.txt", CONFIG)

    def test_leftovers_of_a_killed_creation_do_no_harm(self, tmp_path):
        (tmp_path / "run.lock").touch()
        (tmp_path / ".config.toml.ab12.partial").touch()
        with RunFolder.create(tmp_path, {"model": {"name": "vgg16"}}) as run:
            assert run.config == {"model": {"name": "vgg16"}}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (None, "has no config.toml, so it is not a run"),
            ("[search\n", "cannot be read .*start a new run"),
            ("[search]\noffspring = 3\n", "lacks format and version"),
            ('format = 99\nversion = "7.0"\n', f"format 99, .* format {FORMAT}: .* new run"),
            ('format = 1\nversion = "0.1.0"\n', f"format 1, .* format {FORMAT}: .* new run"),
        ],
    )
    def test_what_is_not_a_readable_run_is_explained(self, tmp_path, text, message):
        if text is not None:
            (tmp_path / "config.toml").write_text(text)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(RunError, match=message):
            RunFolder.open(tmp_path)
        assert sorted(tmp_path.iterdir()) == before

    def test_a_path_that_is_no_folder_is_explained(self, tmp_path):
        with pytest.raises(RunError, match="is not a folder"):
            RunFolder.open(tmp_path / "none")

    @pytest.mark.parametrize("config", [{"search": {"x": object()}}, {"version": {}}])
    def test_options_that_cannot_be_written_are_refused(self, tmp_path, config):
        with pytest.raises(DeepPruningError):
            RunFolder.create(tmp_path, config)
        assert not Path(tmp_path / "config.toml").exists()
