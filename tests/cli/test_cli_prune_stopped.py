"""A search on the command line that is killed, interrupted or met by a second one: real processes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli_search import guided_arguments, trained
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.resume import resume
from deeppruning.roles import ROLES
from deeppruning.system.commands import command
from processes import alive, eventually
from signalled import start, wait_until_stopped


def solutions(out: Path) -> list[bytes]:
    return [(out / f"{role}.safetensors").read_bytes() for role in ROLES]


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> list[str]:
    """The arguments of a search without its folder."""
    model, weights = trained(tmp_path_factory.mktemp("given"))
    words = guided_arguments(model, weights, Path("out"))
    place = words.index("--out")
    return words[:place] + words[place + 2 :]


@pytest.fixture(scope="module")
def expected(given, tmp_path_factory) -> list[bytes]:
    """The solutions of an uninterrupted search."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert CliRunner().invoke(prune, [*given, "--out", str(out)]).exit_code == 0
    return solutions(out)


@pytest.mark.slow
# test_kill.py kills the same run from Python, at more moments.
def test_killed_and_resumed_equals_uninterrupted(given, expected, tmp_path):
    out = tmp_path / "killed"
    with start(signal.SIGSTOP, "candidate  5/11", "prune", *given, "--out", out) as process:
        wait_until_stopped(process)  # asleep, it holds its lock for as long as the other looks
        again = [sys.executable, "-m", "deeppruning", "resume", str(out)]
        second = subprocess.run(again, capture_output=True, text=True)
        assert second.returncode == 1 and "is in use by process" in second.stderr
        process.kill()
    assert process.returncode == -signal.SIGKILL and not (out / "knee.safetensors").exists()
    said = CliRunner().invoke(resume, [str(out)]).stdout
    assert "5 of 11 candidates are known" in said and "\nknee" in said
    assert solutions(out) == expected


@pytest.mark.parametrize(
    ("number", "code", "count"),
    [pytest.param(signal.SIGINT, 130, 2, marks=pytest.mark.slow), (signal.SIGTERM, 143, 0)],
)
def test_a_signal_stops_everything_and_says_how_to_go_on(given, request, tmp_path, number, code, count):
    out = tmp_path / "stopped"
    more = ("--out", out, "--workers", max(count, 1), "--json")
    with start(signal.SIGSTOP, '"event": "candidate"', "prune", *given, *more) as process:
        wait_until_stopped(process)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate()
    assert process.returncode == code
    assert f"continue with: {command('resume', out)}" in errors and "Traceback" not in errors
    assert len(workers) == count
    assert eventually(lambda: not any(alive(int(pid)) for pid in workers))
    if number == signal.SIGTERM:
        return
    said = CliRunner().invoke(resume, [str(out), "--quiet", "--workers", "1"]).stdout
    assert said.startswith("network") and solutions(out) == request.getfixturevalue("expected")
