"""Write the map of the code in CONTRIBUTING.md: a row per file, its first line and its main names.

python tools/code_map.py
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "deeppruning"
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- written by tools/code_map.py -->\n", "<!-- end of the map -->\n"
_MOST = 6  # names shown of one file


def code_map() -> str:
    """A table with a row per file, those of a package below the package's own row."""
    files = sorted((path for path in SOURCE.rglob("*.py") if path.stem != "__main__"), key=_order)
    return "| file | what it holds |\n|---|---|\n" + "\n".join(map(_row, files)) + "\n"


def with_map(page: str) -> str:
    """The page with the map as the code is now."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{code_map()}\n{END}{rest.partition(END)[2]}"


def _order(path: Path) -> list[str]:
    """Files before folders, and the file of a package itself before all that is in it."""
    *folders, file = path.relative_to(SOURCE).with_suffix("").parts
    return [*(f"1{folder}" for folder in folders), "" if file == "__init__" else f"0{file}"]


def _row(path: Path) -> str:
    """A file or package, its first line, and the classes and functions that others use most."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    about = (ast.get_docstring(tree) or "").partition("\n")[0].replace("|", "\\|")
    name = str(path.relative_to(SOURCE).with_suffix(""))
    if path.stem == "__init__":
        return f"| **`{path.parent.relative_to(SOURCE.parent)}`** | **{about}** |"
    public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
    classes = [node.name for node in public if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in public if isinstance(node, ast.FunctionDef)]
    names = list(dict.fromkeys([*classes, *functions]))
    shown = ", ".join(f"`{name}`" for name in names[:_MOST]) + (", ..." if len(names) > _MOST else "")
    return f"| `{name}` | {about}{f' {shown}' if shown else ''} |"


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
