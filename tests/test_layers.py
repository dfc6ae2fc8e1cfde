"""Packages import only downward, as CONTRIBUTING.md draws it, and no modules import each other in a circle.

Imports that only a type checker sees count as well.
"""

import ast
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
PACKAGE = SOURCE / "deeppruning"

# From the bottom up; what stands on a line imports from the lines below it, not from its neighbours.
LAYERS = [
    {"version", "errors"},
    {"registry", "options"},
    {"genome", "roles", "limits", "amounts", "config", "system"},
    {"graph", "models", "data", "evolution", "backends"},
    {"training", "runs", "refitting"},
    {"deploying"},
    {"importing"},
    {"latency"},
    {"objectives"},
    {"searching"},
    {"targets"},
    {"jobs"},
    {"comparison"},
    {"reporting", "exporting", "tracking"},
    {"display"},
    {"api"},
    {"api_runs"},
    {"thinning"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


# The root imports everything, when it is first used.
FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"}


def imported(path: Path) -> set[str]:
    """The modules a file imports; `from package import module` is an import of the module."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names.update(name if name in FILES else node.module for name in inner.values())
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@cache
def imports() -> dict[str, set[str]]:
    """What every file imports; found when a test asks, not whenever the tests are collected."""
    return {name: imported(path) for name, path in FILES.items()}


def test_packages_import_only_downward() -> None:
    upward = {
        (module, name)
        for module, names in imports().items()
        for name in names & FILES.keys()
        if (own := module.split(".")[1]) != (other := name.split(".")[1]) and LEVEL[other] >= LEVEL[own]
    }
    assert upward == set()


@pytest.mark.parametrize("package", sorted(path.name for path in PACKAGE.iterdir() if path.is_dir()))
def test_no_modules_of_a_package_import_each_other_in_a_circle(package: str) -> None:
    inside = {name for name in FILES if f"{name}.".startswith(f"deeppruning.{package}.")}
    try:
        TopologicalSorter({name: (imports()[name] & inside) - {name} for name in inside}).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' <- '.join(error.args[1])}")


def test_evolution_needs_numpy_only() -> None:
    outside = {
        name.split(".")[0]
        for module in FILES
        if module.startswith("deeppruning.evolution")
        for name in imports()[module]
        if not name.startswith("deeppruning.")
    }
    assert outside - sys.stdlib_module_names == {"numpy"}


def test_every_file_says_what_it_is_for() -> None:
    silent = [name for name, path in FILES.items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
