"""What holds for all tests: they leave the user's state folder alone, and programs they start heed Ctrl-C."""

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A shell has its jobs in the background ignore Ctrl-C, and whatever they start would do so, too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_state_folder() -> Iterator[None]:
    """An empty state folder, seen by every process that a test starts."""
    before = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        yield
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
