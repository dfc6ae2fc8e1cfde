"""A run killed at random moments, many times over, must end in the very bytes of one never killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from search_helpers import outcome

PROGRAM = Path(__file__).parents[1] / "kill_run.py"


def runs_killed(folder: Path, strategy: str, *, seed: int, kills: int) -> list[Path]:
    """Runs that came to their end although they were killed so many times between them."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(seed), str(kills), strategy],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for strategy in ("paper", "guided"):
        folder = tmp_path_factory.mktemp("undisturbed") / "runs"
        (found[strategy],) = runs_killed(folder, strategy, seed=0, kills=0)
    return found


@pytest.mark.xdist_group("kill")
@pytest.mark.parametrize(
    ("strategy", "seed"),
    [
        ("guided", 1),
        *(pytest.param("guided", seed, marks=pytest.mark.slow) for seed in (2, 3)),
        *(pytest.param("paper", seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4)),
    ],
)
def test_killed_run_resumes_to_the_same_bytes(
    tmp_path: Path, undisturbed: dict[str, Path], strategy: str, seed: int
) -> None:
    for run in runs_killed(tmp_path / "runs", strategy, seed=seed, kills=10):
        assert outcome(run) == outcome(undisturbed[strategy])
