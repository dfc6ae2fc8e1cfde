"""A run on a disk that fills up: a clear error, and the same result once there is room again."""

import os
import subprocess
from pathlib import Path

import pytest

import deeppruning as dp
from deeppruning.errors import RunError
from search_helpers import digits, outcome, quick_finetune, quick_search, tiny_net


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 200 kB in memory; only root may mount one."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(mount)], capture_output=True
    )
    if done.returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_full_disk_stops_the_run_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    train, test = digits()
    options = {"search": quick_search(), "finetune": quick_finetune(), "workers": 1}
    dp.prune(tiny_net(), train, test, run_dir=tmp_path / "roomy", **options)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(130_000))
    with pytest.raises(RunError, match=r"(?i)full|space"):
        dp.prune(tiny_net(), train, test, run_dir=small_disk / "run", **options)
    ballast.unlink()
    dp.resume(small_disk / "run", tiny_net(), train, test, workers=1)
    assert outcome(small_disk / "run") == outcome(tmp_path / "roomy")
