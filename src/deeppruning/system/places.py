"""Where programs keep things of a user's."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """What can be made again: XDG_CACHE_HOME, or what systems are used to."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deeppruning"
