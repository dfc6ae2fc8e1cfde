"""What scripts rely on: JSON on the output alone, outcomes in one line, and exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli_search import FACTORY
from cli_search import TINY as TINY_FILE
from deeppruning.cli.main import cli
from search_helpers import STORED_RUN

TINY = f"{Path(__file__).parent.parent / 'search_helpers.py'}:TinyNet"
FIGURES = ("bench", "compare", "data", "demo", "evaluate", "export", "finetune", "models", "pick", "prune")
FIGURES = (*FIGURES, "resume", "thin", "train")


@pytest.mark.parametrize("command", FIGURES)
def test_every_command_that_prints_figures_has_json(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert "--json" in {name for parameter in found.params for name in parameter.opts}


@pytest.mark.parametrize("command", sorted({*FIGURES} - {"data", "models"}))
def test_every_command_that_prints_more_than_a_list_has_quiet(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert "--quiet" in {name for parameter in found.params for name in parameter.opts}


def exported(out: Path, *more: str) -> str:
    arguments = [
        "export",
        str(STORED_RUN),
        "--model",
        TINY,
        "--format",
        "safetensors",
        "--out",
        str(out),
        *more,
    ]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_export_prints_one_object(tmp_path: Path) -> None:
    out = tmp_path / "knee.safetensors"
    record = json.loads(exported(out, "--json"))
    assert record == {
        "path": str(out), "format": "safetensors", "bytes": out.stat().st_size, "difference": 0.0,
        "int8": None, "notes": [], "pushed": None,
    }  # fmt: skip


def test_export_prints_only_the_path_if_quiet(tmp_path: Path) -> None:
    assert exported(tmp_path / "knee.safetensors", "--quiet") == f"{tmp_path / 'knee.safetensors'}\n"


def test_train_prints_its_epochs_as_json(tmp_path: Path) -> None:
    (tmp_path / TINY_FILE).write_text(FACTORY)
    arguments = ["train", f"{tmp_path / TINY_FILE}:tiny", "--data", "digits", "--epochs", "2", "--json"]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / "base"), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    first, second, last = map(json.loads, done.stdout.splitlines())
    assert [first["event"], first["epoch"], second["epoch"], second["epochs"]] == ["epoch", 1, 2, 2]
    assert last["event"] == "trained" and last["test_error"] == second["test_error"]
    assert Path(last["weights"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--version"], 0, ""),
        (["report", "no-such-run"], 1, "error: no-such-run is not a folder"),
        (["prun"], 1, "unknown command 'prun'"),
        (["report", "--no-such-option"], 2, "No such option"),
        (["report"], 2, "Missing argument"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deeppruning", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code and message in done.stderr
