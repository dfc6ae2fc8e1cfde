"""A run killed at random moments, many times over, must end in the very bytes of one never killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from search_helpers import outcome

PROGRAM = Path(__file__).with_name("kill_run.py")


def run_killed(folder: Path, *, seed: int, kills: int) -> int:
    """How often the run was killed before it came to its end."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(seed), str(kills)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run_killed(folder, seed=0, kills=0) == 0
    return folder


@pytest.mark.xdist_group("kill")
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_run_resumes_to_the_same_bytes(tmp_path: Path, undisturbed: Path, seed: int) -> None:
    kills = run_killed(tmp_path / "run", seed=seed, kills=11)
    assert kills >= 10, "the run ended before it had been killed often enough"
    assert outcome(tmp_path / "run") == outcome(undisturbed)
