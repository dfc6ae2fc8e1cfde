"""A run killed at random moments, many times over, must end in the very bytes of one never killed."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kill_run import work
from search_helpers import outcome

KILLS = {"guided": 2, "paper": 4}  # a run
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


@functools.cache
def undisturbed(parent: Path, strategy: str) -> dict[str, object]:
    """What a run comes to that is never killed; worked out once."""
    run = parent / f"undisturbed-{strategy}"
    with Path(os.devnull).open("wb") as nobody:
        work(run, nobody.fileno(), strategy)
    return outcome(run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kill")


@pytest.mark.xdist_group("kill")
@pytest.mark.parametrize(
    ("strategy", "seed"),
    [
        ("guided", 1),
        *(pytest.param("guided", seed, marks=pytest.mark.slow) for seed in (2, 3)),
        *(pytest.param("paper", seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4)),
    ],
)
def test_killed_run_resumes_to_the_same_bytes(tmp_path: Path, folder: Path, strategy: str, seed: int) -> None:
    for run in runs_killed(tmp_path / "runs", strategy, seed=seed, kills=KILLS[strategy]):
        assert outcome(run) == undisturbed(folder, strategy)
