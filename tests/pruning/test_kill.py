"""A run killed at random moments, many times over, must end in the very bytes of one never killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from search_helpers import outcome

PROGRAM = Path(__file__).parents[1] / "kill_run.py"


def runs_killed(folder: Path, *, seed: int, kills: int) -> list[Path]:
    """Runs that came to their end although they were killed so many times between them."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(seed), str(kills)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (run,) = runs_killed(tmp_path_factory.mktemp("undisturbed") / "runs", seed=0, kills=0)
    return run


@pytest.mark.xdist_group("kill")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_killed_run_resumes_to_the_same_bytes(tmp_path: Path, undisturbed: Path, seed: int) -> None:
    for run in runs_killed(tmp_path / "runs", seed=seed, kills=10):
        assert outcome(run) == outcome(undisturbed)
