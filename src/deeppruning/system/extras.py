"""Packages that some features need and that do not come along: how to get those that are missing.

The package itself is in no index, so `pip install deeppruning-es[onnx]` finds nothing: what is named here
are the packages behind an extra, as pyproject.toml lists them.
"""

import re
import shlex
from importlib.util import find_spec

from deeppruning.system.commands import pip

EXTRAS = {
    "onnx": ("onnx>=1.16", "onnxruntime>=1.18", "onnxscript>=0.1"),
    "plots": ("matplotlib>=3.8",),
    "ray": ("ray[client]>=2.40",),
    "rivals": ("pymoo>=0.6.1",),
}


def how_to_install(package: str) -> str:
    """The command that brings a package, and with it all that its feature needs, to this interpreter.

    >>> how_to_install("pymoo").endswith("-m pip install 'pymoo>=0.6.1'")
    True
    """
    found = [needed for needed in EXTRAS.values() if package in map(_name, needed)]
    return shlex.join([*pip(), "install", *(found[0] if found else (package,))])


def has_extra(name: str) -> bool:
    """Whether all packages of an extra are installed; none of them is imported."""
    return all(find_spec(_name(requirement)) is not None for requirement in EXTRAS[name])


def format_to_suggest() -> str:
    """The format that people are told to export to: ONNX where its packages are installed."""
    return "onnx" if has_extra("onnx") else "torch-export"


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
