"""A run is passed on: its files do not say where it lay, nor which machine or process made it."""

import shutil
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from cli_calls import call
from deeppruning.reporting.data import collect
from deeppruning.runs import Evaluation, History, RunFolder
from deeppruning.system.commands import command_for_page
from export_runs import names_a_place


def test_files_that_people_share_hold_no_places(finished_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / "run"))
    call("report", run)
    call("export", run)
    files = [path for path in run.rglob("*") if path.is_file()]
    told = {
        str(path.relative_to(run)) for path in files if names_a_place(path, finished_run.parent, tmp_path)
    }
    assert told == {"config.toml"}  # which has to find network, weights and data again
    assert (run / "run.lock").read_bytes() == b""
    with closing(sqlite3.connect(run / "history.sqlite")) as database:
        assert database.execute("SELECT DISTINCT worker FROM evaluations").fetchall() == [("worker 1",)]


def test_workers_are_numbered_and_tracebacks_name_files_only(tmp_path: Path) -> None:
    here = socket.gethostname()
    with History(tmp_path / "history.sqlite") as history:
        for place, worker in enumerate((f"{here}:7", f"{here}:9", f"{here}:7", "")):
            genome = np.arange(4) == place
            trace = f'Traceback:\n  File "{tmp_path}/my net.py", line 3, in forward\nValueError: no\n'
            history.record_evaluation(
                Evaluation(
                    genome=genome,
                    error=None,
                    cost=None,
                    flops=1,
                    params=1,
                    worker=worker,
                    status="failed",
                    detail=trace,
                )
            )
        found = history.evaluations()
    assert [one.worker for one in found] == ["worker 1", "worker 2", "worker 1", ""]
    assert {one.detail for one in found} == {
        'Traceback:\n  File "my net.py", line 3, in forward\nValueError: no\n'
    }


def test_a_page_shows_options_and_commands_without_folders(tmp_path: Path, monkeypatch) -> None:
    own = str(tmp_path / "nets.py:tiny")
    tables = {
        "model": {"spec": own, "options": {"depth": 3}},
        "data": {"data_dir": str(tmp_path)},
        "search": {},
    }
    RunFolder.create(tmp_path / "runs" / "mine", tables).close()
    shown = collect(tmp_path / "runs" / "mine")
    assert shown["config"]["model"] == {"spec": "nets.py:tiny", "options": {"depth": 3}}
    assert shown["config"]["data"] == {"data_dir": tmp_path.name}
    assert shown["commands"]["bench"] == command_for_page("bench", "mine")
    monkeypatch.chdir(tmp_path)
    for path in ("runs/mine", tmp_path / "runs" / "mine"):
        assert collect(path)["commands"]["bench"] == command_for_page("bench", "runs/mine")
