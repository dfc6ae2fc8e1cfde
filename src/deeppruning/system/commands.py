"""Commands as people are told them: pasted into the shell that they are read in, they work.

Whatever a path holds is quoted, and a program that the PATH does not lead to is named by its own path.
"""

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "deeppruning"


def command(*words: object) -> str:
    """A command of this program.

    >>> command("resume", "my runs/thin").endswith("deeppruning resume 'my runs/thin'")
    True
    """
    return shlex.join([*program(), *map(str, words)])


def command_for_page(*words: object) -> str:
    """The same for a page that may be read elsewhere, which tells no path of this machine's programs."""
    called = program()
    return shlex.join([*([_NAME] if Path(called[0]).is_absolute() else called), *map(str, words)])


def program() -> list[str]:
    """The words that call this program from the current folder, with the PATH of this process."""
    called = Path(sys.argv[0] if sys.argv else "")
    beside = Path(sys.executable).with_name(f"{_NAME}{'.exe' if sys.platform == 'win32' else ''}")
    for script in ([called] if called.stem == _NAME else []) + [beside]:
        if script.is_file():
            return [_shown(script)]
    return [_shown(Path(sys.executable)), "-m", _NAME]


def pip() -> list[str]:
    """The words that call the pip of this interpreter."""
    return [_shown(Path(sys.executable)), "-m", "pip"]


def _shown(file: Path) -> str:
    """A program by its name where the PATH leads to it, else by its path, a relative one if it is in here."""
    found = shutil.which(file.name)
    if found and Path(found).is_absolute() and Path(found).parent.resolve() == file.parent.resolve():
        return file.name
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_absolute() and file.is_relative_to(here) else file)
