"""A search on the command line that is killed, interrupted or met by a second one: real processes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli_search import arguments, trained
from deeppruning.cli.prune import prune
from deeppruning.cli.resume import resume

PROGRAM = [sys.executable, "-c", "from deeppruning.cli.main import main; main()"]
ROLES = ("heavy", "knee", "light")


def start(*given: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*PROGRAM, *map(str, given)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text!r} never came; errors: {process.communicate()[1]}")


def solutions(out: Path) -> list[bytes]:
    return [(out / f"{role}.safetensors").read_bytes() for role in ROLES]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[list[str], list[bytes]]:
    """The arguments of a search without its folder, and the solutions of an uninterrupted one."""
    folder = tmp_path_factory.mktemp("whole")
    model, weights = trained(folder)
    given = arguments(model, weights, folder / "run")
    assert CliRunner().invoke(prune, given).exit_code == 0
    place = given.index("--out")
    return given[:place] + given[place + 2 :], solutions(folder / "run")


def test_killed_and_resumed_equals_uninterrupted(whole, tmp_path):
    given, expected = whole
    out = tmp_path / "killed"
    with start("prune", *given, "--out", out) as process:
        wait_for(process, "candidate  5/11")
        process.send_signal(signal.SIGSTOP)  # asleep, it holds its lock for as long as the other looks
        with start("resume", out) as second:
            _, errors = second.communicate()
        assert second.returncode == 1 and "is in use by process" in errors
        process.kill()
    assert process.returncode == -signal.SIGKILL and not (out / "knee.safetensors").exists()
    said = CliRunner().invoke(resume, [str(out)]).stdout
    assert "of 11 candidates are known" in said and "\nknee" in said
    assert solutions(out) == expected


def test_ctrl_c_stops_everything_and_says_how_to_go_on(whole, tmp_path):
    given, expected = whole
    out = tmp_path / "stopped"
    with start("prune", *given, "--out", out, "--workers", 2, "--json") as process:
        wait_for(process, '"event": "candidate"')
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"deeppruning resume {out}" in errors and "Traceback" not in errors
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    said = CliRunner().invoke(resume, [str(out), "--quiet", "--workers", "1"]).stdout
    assert said.startswith("network") and solutions(out) == expected
