"""One home for each idea: a name that the package defines means one thing, and stands in one file."""

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
