"""Commands shown to users, which work when pasted into their shell: our own, and pip for missing packages.

Paths are quoted, and a program that is not on the PATH is given by its full path.
"""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

_NAME = "deeppruning"

# The packages behind each extra of pyproject.toml. They are named one by one because the package is in no
# index: `pip install deeppruning-es[onnx]` would find nothing.
EXTRAS = {
    "onnx": ("onnx>=1.16", "onnxruntime>=1.18", "onnxscript>=0.1"),
    "plots": ("matplotlib>=3.8",),
    "ray": ("ray[client]>=2.40",),
    "tensorboard": ("tensorboard>=2.14",),
    "mlflow": ("mlflow>=3",),
    "wandb": ("wandb>=0.19",),
    "hub": ("huggingface_hub>=0.30",),
}


def command(*words: object) -> str:
    """A command of this program.

    >>> command("resume", "my runs/mine").endswith("deeppruning resume 'my runs/mine'")
    True
    """
    return shlex.join([*program(), *map(str, words)])


def command_for_page(*words: object) -> str:
    """The same for a page that may be read on another machine: without the path of the program."""
    words_here = program()
    return shlex.join([*([_NAME] if Path(words_here[0]).is_absolute() else words_here), *map(str, words)])


def program() -> list[str]:
    """The words that call this program from the current folder, with the PATH of this process."""
    called = Path(sys.argv[0] if sys.argv else "")
    beside = Path(sys.executable).with_name(f"{_NAME}{'.exe' if sys.platform == 'win32' else ''}")
    for script in ([called] if called.stem == _NAME else []) + [beside]:
        if script.is_file():
            return [_program_in_words(script)]
    return [_program_in_words(Path(sys.executable)), "-m", _NAME]


def how_to_install(package: str) -> str:
    """The pip command that installs a package, with the others of its extra, for this interpreter.

    >>> how_to_install("ray").endswith("-m pip install 'ray[client]>=2.40'")
    True
    """
    needed = next(
        (extra for extra in EXTRAS.values() if package in map(_package_of_requirement, extra)), (package,)
    )
    return shlex.join([_program_in_words(Path(sys.executable)), "-m", "pip", "install", *needed])


def has_extra(name: str) -> bool:
    """Whether all packages of an extra are installed; none of them is imported."""
    return all(find_spec(_package_of_requirement(requirement)) is not None for requirement in EXTRAS[name])


def format_to_suggest() -> str:
    """The export format to suggest: ONNX where its packages are installed."""
    return "onnx" if has_extra("onnx") else "torch-export"


def _program_in_words(file: Path) -> str:
    """A program by its name if it is on the PATH, else by its path, relative to the current folder."""
    on_path = shutil.which(file.name)
    if on_path and Path(on_path).is_absolute() and Path(on_path).parent.resolve() == file.parent.resolve():
        return file.name
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_absolute() and file.is_relative_to(here) else file)


def _package_of_requirement(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
