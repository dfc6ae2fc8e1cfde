"""What benchmarks, examples, experiments and tools import from the package is there."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "examples", "experiments", "tools")
    for path in (ROOT / folder).rglob("*.py")
)


def imported_names(path: Path) -> list[tuple[str, str]]:
    """(module, name) of every `from deeppruning... import name`, at the top or inside a function."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "deeppruning"
        for alias in node.names
    ]


def exists(module: str, name: str) -> bool:
    """Whether a module of the package has this name, or a module of this name."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_import_names_that_exist(path: Path) -> None:
    missing = [f"{module}.{name}" for module, name in imported_names(path) if not exists(module, name)]
    assert missing == []
