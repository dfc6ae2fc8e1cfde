"""Wait for a run that is being set up: `watch` may be there before the folder is."""

import time
from collections.abc import Callable
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.runs.folder import CONFIG, refuse_occupied

PAUSE = 0.5  # seconds between two looks


def wait_for_run(path: Path, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> None:
    """Return once the folder holds a run; a folder in which none can begin is refused.

    A network without weights is trained first, and only then is there a folder.
    """
    told = False
    while not _is_there(path):
        if not told:
            say(f"waiting for a run in {path}: there is none yet (Ctrl-C stops)")
            told = True
        pause(PAUSE)


def _is_there(path: Path) -> bool:
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file, not the folder of a run; give the folder that a run is made in")
    try:
        refuse_occupied(path)
    except RunError:
        if not (path / CONFIG).is_file():  # something else lies there, and no run will come
            raise
        return True
    return False
