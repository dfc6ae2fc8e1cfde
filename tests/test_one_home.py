"""One home for each idea: a name that the package defines means one thing, and stands in one file."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "deeppruning"
FILES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def outside(home: str, text: str, *, but: tuple[str, ...] = ()) -> list[str]:
    """Files other than its home, and those in folders excepted, that write something out themselves."""
    return [name for name, source in FILES.items() if text in source and name != home and name[:5] not in but]


def test_genomes_and_populations_have_one_name() -> None:
    # The graph works on bits, be they of one genome or of many.
    assert outside("genome.py", "NDArray[np.bool_]", but=("graph",)) == []
    assert outside("genome.py", "def candidate_seed") == []


def test_roles_are_named_once() -> None:
    for role in ("heavy", "knee", "light"):
        assert outside("roles.py", f'"{role}"') == []
    assert outside("roles.py", "ORIGINAL =") == outside("roles.py", "ROLES =") == []


def definitions() -> dict[str, dict[str, type[ast.AST]]]:
    """Where each public name that begins with a capital is defined, and by what, but for the graph."""
    found: dict[str, dict[str, type[ast.AST]]] = defaultdict(dict)
    for name, source in FILES.items():
        if name.startswith("graph"):
            continue
        for node in ast.parse(source).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
            for target in targets:
                word = getattr(target, "id", getattr(target, "name", ""))
                if word[:1].isupper() and not word.isupper():
                    found[word][name] = type(node)
    return found


def test_what_a_class_is_called_nothing_else_is() -> None:
    several = {name: homes for name, homes in definitions().items() if len(homes) > 1}
    mixed = {name: sorted(homes) for name, homes in several.items() if ast.ClassDef in homes.values()}
    assert mixed == {}


def test_facts_are_named_once() -> None:
    # The history alone takes a name for a fact, for whoever looks into it from outside.
    for call in ('_fact("', '_fact(f"', '"solution/', '"diverged/', '"latency_batch_1"'):
        assert outside("runs/facts.py", call) == (["runs/history.py"] if call == '_fact("' else [])
