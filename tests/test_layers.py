"""The package imports only downward, as CONTRIBUTING.md draws it: no neighbours, and no detours inside."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "deeppruning"

# From the bottom up; what stands on a line imports from the lines below it, not from its neighbours.
LAYERS = {
    "": [
        {"version", "errors"},
        {"registry", "options"},
        {"genome", "roles", "limits", "amounts", "config", "system"},
        {"graph", "models", "data", "evolution", "backends"},
        {"training", "runs", "refitting"},
        {"deploying"},
        {"latency"},
        {"objectives"},
        {"searching"},
        {"targets"},
        {"jobs"},
        {"comparison"},
        {"reporting", "exporting"},
        {"display"},
        {"api", "finished"},
        {"cli"},
        {"__main__"},
    ],
    "graph": [
        {"atoms", "calls"},
        {"payloads"},
        {"rules"},
        {"trace", "cut"},
        {"depth", "paths"},
        {"plan"},
        {"repair", "assemble"},
        {"groups"},
        {"proof"},
        {"build"},
        {"channel_graph"},
    ],
    "deploying": [
        {"onnx_graph"},
        {"simplify"},
        {"reading", "report", "guess"},
        {"norms", "stand_ins"},
        {"steps"},
        {"deploy"},
    ],
    "backends": [{"limits"}, {"base", "parcel"}, {"registry"}, {"inprocess", "pool"}, {"ray", "local"}],
    "comparison": [
        {"contexts", "words"},
        {"problem"},
        {"results", "proposals", "methods"},
        {"events"},
        {"rivalry"},
        {"setup"},
    ],
    "cli": [{"completion"}, {"main"}, {"options"}, {"running"}, {"commands"}],
}
KNOT = {"searching", "targets", "jobs"}  # not yet untied among themselves
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem != "__init__")


def imported(path: Path) -> set[str]:
    """The modules a file imports when it is run; what only a type checker sees does not count."""
    tree = ast.parse(path.read_text())
    unseen = [
        node
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.unparse(guard.test)
        for node in ast.walk(guard)
    ]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node not in unseen:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_only_downward(folder: str) -> None:
    level = {name: place for place, names in enumerate(LAYERS[folder]) for name in names}
    base = PACKAGE / folder
    prefix = ".".join(filter(None, ["deeppruning", folder])) + "."
    upward = {}
    for path in base.rglob("*.py"):
        own = path.relative_to(base).parts[0].removesuffix(".py")
        if own != "__init__":
            inner = {
                name.removeprefix(prefix).split(".")[0] for name in imported(path) if name.startswith(prefix)
            }
            wrong = {name for name in inner - {own} if level[name] >= level[own]}
            wrong -= KNOT if own in KNOT else set()
            if wrong:
                upward[str(path.relative_to(PACKAGE))] = wrong
    assert upward == {}


def test_evolution_needs_numpy_only() -> None:
    outside = {
        name.split(".")[0]
        for path in (PACKAGE / "evolution").glob("*.py")
        for name in imported(path)
        if not name.startswith("deeppruning.")
    }
    assert outside - sys.stdlib_module_names == {"numpy"}


def test_every_file_says_what_it_is_for() -> None:
    silent = [path.name for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []
