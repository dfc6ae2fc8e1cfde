"""Packages that some features need and that do not come along: how to get those that are missing.

The package itself is in no index, so `pip install deeppruning-es[onnx]` finds nothing: what is named here
are the packages behind an extra, as pyproject.toml lists them.
"""

import re
import shlex

EXTRAS = {
    "onnx": ("onnx>=1.16", "onnxruntime>=1.18", "onnxscript>=0.1"),
    "ray": ("ray[client]>=2.40",),
    "rivals": ("pymoo>=0.6.1",),
}


def how_to_install(package: str) -> str:
    """The command that brings a package, and with it all that its feature needs.

    >>> how_to_install("pymoo"), how_to_install("numba")
    ("pip install 'pymoo>=0.6.1'", 'pip install numba')
    """
    found = [needed for needed in EXTRAS.values() if package in map(_name, needed)]
    return f"pip install {shlex.join(found[0] if found else (package,))}"


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
