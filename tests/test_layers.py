"""The package imports only downward, as CONTRIBUTING.md draws it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "deeppruning"

# From the bottom up; what stands on one line may import its neighbours.
LAYERS = [
    {"version", "errors", "config", "atomic"},
    {"graph", "models", "data"},
    {"evolution", "training", "backends", "runs"},
    {"search"},
    {"rivals"},
    {"report", "export"},
    {"api"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem != "__init__")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_downward(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    modules = {name.split(".")[1] for name in imported(path) if name.startswith("deeppruning.")}
    too_high = {name for name in modules if LEVEL[name] > LEVEL[own]}
    assert too_high == set()


def test_evolution_needs_numpy_only() -> None:
    outside = {
        name.split(".")[0]
        for path in (PACKAGE / "evolution").glob("*.py")
        for name in imported(path)
        if not name.startswith("deeppruning.")
    }
    assert outside <= {"numpy", "collections", "dataclasses", "typing"}


def test_every_file_says_what_it_is_for() -> None:
    silent = [path.name for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
