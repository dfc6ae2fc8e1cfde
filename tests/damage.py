"""Ways to damage a file, as Hypothesis strategies: bytes of any file, values of JSON, TOML and SQLite."""

import copy
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

DEEP = 20_000  # beyond what any parser of Python nests
# What no honest writer puts there: wrong kinds, wrong signs, sizes beyond any machine, names that are none.
STRANGE: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        3,
        2_000_000_000,
        2**63,
        2**70,
        0.5,
        -0.5,
        1e308,
        float("inf"),
        float("nan"),
    ),
    *("", "x", "\0", "../..", "a:b", "ray", "cuda:99", "0" * 5000, "é" * 300, "[" * DEEP, '{"a":' * DEEP),
    *(
        [],
        [1],
        [[]],
        [0, 0],
        [1e9, 1e9],
        ["x", None],
        {},
        {"x": 1},
        {"name": "resnet20", "num_classes": 2 * 10**9},
    ),
]


@st.composite
def damaged_bytes(draw: Callable[..., Any], content: bytes) -> bytes:
    """The content with one to three faults: bits flipped, bytes cut off, put in, taken out or moved."""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["flip", "truncate", "insert", "delete", "splice", "fill"]))
        # Headers are small and matter most: half of all faults go there.
        reach = draw(st.sampled_from([64, 1024, len(content), len(content)]))
        place = draw(st.integers(0, max(0, min(reach, len(content)) - 1)))
        length = draw(st.sampled_from([1, 1, 2, 8, 100, 5000]))
        if kind == "flip" and content:
            flipped = content[place] ^ (1 << draw(st.integers(0, 7)))
            content = content[:place] + bytes([flipped]) + content[place + 1 :]
        elif kind == "truncate":
            content = content[:place]
        elif kind == "insert":
            put = draw(st.sampled_from([b"\0", b"\xff" * 8, b"[" * length, b"\n", b"9" * length, b"-"]))
            content = content[:place] + put + content[place:]
        elif kind == "delete":
            content = content[:place] + content[place + length :]
        elif kind == "splice":
            source = draw(st.integers(0, max(0, len(content) - 1)))
            content = content[:place] + content[source : source + length] + content[place + length :]
        else:
            content = content[:place] + b"\xff" * length + content[place + length :]
    return content


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a tree of tables and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = []
    for key, value in items:
        found += [(tree, key), *_places(value)]
    return found


@st.composite
def damaged_tree(draw: Callable[..., Any], tree: Any, *, null: bool = True) -> Any:
    """A tree of JSON or TOML values with one or two of them replaced or removed."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 2))):
        places = _places(tree)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        value = copy.deepcopy(
            draw(st.sampled_from(STRANGE if null else [one for one in STRANGE if one is not None]))
        )
        if draw(st.integers(0, 3)) == 0:
            del holder[key]
        else:
            holder[key] = value
    return tree


def without_null(tree: Any) -> Any:
    """The same without what TOML cannot say."""
    if isinstance(tree, dict):
        return {key: without_null(value) for key, value in tree.items() if value is not None}
    return [without_null(value) for value in tree if value is not None] if isinstance(tree, list) else tree


@st.composite
def database_edits(draw: Callable[..., Any], path: Path) -> list[tuple[str, tuple[Any, ...]]]:
    """Statements that spoil one or two values, rows or facts of a history."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")] for table in tables
        }
        rows = {table: [row for (row,) in database.execute(f"SELECT rowid FROM {table}")] for table in tables}
        facts = database.execute("SELECT key, value FROM facts").fetchall()
    edits: list[tuple[str, tuple[Any, ...]]] = []
    plain = [*(one for one in STRANGE if one is None or isinstance(one, (int, float, str))), b"", b"\xff" * 9]
    storable = [one for one in plain if not isinstance(one, int) or abs(one) < 2**63]
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["value", "value", "fact", "fact", "delete"]))
        table = draw(st.sampled_from([name for name in tables if rows[name]]))
        row = draw(st.sampled_from(rows[table]))
        if kind == "value":
            column = draw(st.sampled_from(columns[table]))
            value = draw(st.sampled_from(storable))
            edits.append((f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value, row)))
        elif kind == "delete":
            edits.append((f"DELETE FROM {table} WHERE rowid = ?", (row,)))
        else:
            key, text = draw(st.sampled_from(facts))
            changed = draw(damaged_tree({"fact": json.loads(text)})).get("fact")
            edits.append(("UPDATE facts SET value = ? WHERE key = ?", (json.dumps(changed), key)))
    return edits
