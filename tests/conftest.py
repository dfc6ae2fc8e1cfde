"""What tests share: the user's own folders are left alone, and programs that are started heed Ctrl-C."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from export_runs import own_class_run
from width_helpers import keep_times

# How long an example takes to draw or to run says something about the machine, nothing about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    """One thread here and in whatever is started: tests run side by side, on networks that gain from no more.

    OMP_NUM_THREADS asks for another number, to see that no result depends on it.

    Ray's workers are started at the lowest priority but four, so on a busy machine they would never begin.
    And a shell has its jobs in the background ignore Ctrl-C, which would hold for all that they start.
    """
    torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))
    os.environ.setdefault("RAY_worker_niceness", "0")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_folders() -> Iterator[None]:
    """Folders for state and cache, seen by every process that a test starts.

    They are empty but for times by which multiples of 8 are fast: no test depends on what this machine is.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("XDG_STATE_HOME", f"{folder}/state")
        patch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        keep_times(block=8)
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny networks gain nothing from threads, and suffer from them where tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a network from the user's own file; to be copied, not changed."""
    return own_class_run(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def own_run(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for the tests of one file."""
    return Path(shutil.copytree(finished_run, tmp_path_factory.mktemp("copy") / "run"))
