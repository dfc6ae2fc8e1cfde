"""The coverage table in Markdown and as one line a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
HEADS = (
    "network",
    "input",
    "filters",
    "prunable",
    "genes",
    "build",
    "proof",
    "step",
    "branches",
    "Torch-Pruning",
)
WIDTHS = dict(zip(HEADS, (34, 5, 7, 8, 7, 7, 9, 5, 8, 1), strict=True))


def render(rows: Sequence[Row]) -> str:
    """The table, then the reasons for what is frozen, then Torch-Pruning's errors."""
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    for row in rows:
        lines.append("| " + " | ".join(_cells(row)) + " |")
    lines += ["", _summary(rows), "", "Frozen filters and the reason:", ""]
    for row in rows:
        reasons = row["ours"].get("reasons", [])
        if reasons:
            listed = "; ".join(f"{count} {why}" for why, count in reasons[:3])
            more = f"; and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
            lines.append(f"- `{row['network']}`: {listed}{more}")
    lines += ["", "What Torch-Pruning said where it failed:", ""]
    for row in rows:
        if "error" in row["torch_pruning"]:
            lines.append(f"- `{row['network']}`: {row['torch_pruning']['error']}")
    return "\n".join(lines)


def sentence(row: Row) -> str:
    """One line for the terminal."""
    cells = dict(zip(HEADS, _cells(row), strict=True))
    return "  ".join(f"{cells[head]:>{width}}" for head, width in WIDTHS.items())


def _cells(row: Row) -> tuple[str, ...]:
    ours = row["ours"]
    name = f"`{row['network']}`"
    if "error" in ours:
        return (
            name,
            str(row["size"]),
            "",
            ours["error"][:60],
            "",
            "",
            "",
            "",
            "",
            _rival(row["torch_pruning"]),
        )
    share = 100 * ours["prunable"] / ours["filters"]
    proof = f"{ours['difference']:.0e}" if ours["proof"] else f"FAILS {ours['difference']:.0e}"
    return (
        name,
        str(row["size"]),
        f"{ours['filters']:,}",
        f"{share:.1f} %",
        f"{ours['genes']:,}",
        f"{ours['seconds']:.1f} s",
        proof if ours["flops_exact"] else f"{proof}, FLOPs differ",
        "yes" if ours["trains"] is True else "no",
        f"{ours['branches']}" if ours["branches_proven"] else f"{ours['branches']}, NOT PROVEN",
        _rival(row["torch_pruning"]),
    )


def _rival(row: Row) -> str:
    if "outcome" not in row:
        return row["error"]
    if row["outcome"] == "ok":
        trains = "" if row["trains"] is True else ", does not train"
        return f"ok, reaches {100 * row['reach']:.0f} %{trains}"
    if row["outcome"] == "differs":
        return f"**wrong output** ({row['difference']:.0e}), reaches {100 * row['reach']:.0f} %"
    return f"**{row['outcome']}**"


def _summary(rows: Sequence[Row]) -> str:
    built = [row["ours"] for row in rows if "error" not in row["ours"]]
    # Where every filter is frozen there is no cut, so nothing is proven either.
    cut = [ours for ours in built if ours["prunable"]]
    proven = sum(ours["proof"] and ours["flops_exact"] and ours["trains"] is True for ours in cut)
    whole = sum(ours["prunable"] == ours["filters"] for ours in built)
    rivals = [row["torch_pruning"] for row in rows]
    right = [rival for rival in rivals if rival.get("outcome") == "ok"]
    idle = sum(rival["trains"] is not True for rival in right)
    stopped = sum("outcome" not in rival for rival in rivals)
    return (
        f"Of {len(rows)} networks DeepPruningES builds {len(built)}, finds something to cut in {len(cut)}, "
        f"proves the cuts of {proven} (equal to masking, FLOPs exact, trains) and can prune every filter of "
        f"{whole}. Torch-Pruning cuts {len(right)} correctly, {idle} of which do not train afterwards; "
        f"{stopped} ran into the time limit, so nothing is known of those."
    )


def read_rivals(text: str) -> dict[str, Row]:
    """Network -> what a table in Markdown says of Torch-Pruning, so that our columns can be renewed alone.

    >>> read_rivals("| `zoo/a` | 32 | ok, reaches 97 % |")
    {'zoo/a': {'outcome': 'ok', 'reach': 0.97, 'trains': True}}
    >>> read_rivals("| `zoo/b` | 32 | **cut fails** |\\n- `zoo/b`: no index 8")
    {'zoo/b': {'outcome': 'cut fails', 'error': 'no index 8'}}
    """
    errors = dict(re.findall(r"^- `(.+?)`: (.+)$", text, flags=re.MULTILINE))  # the last list is the rival's
    return {
        name: _said(cell, errors.get(name, "")) for name, cell in re.findall(ROW, text, flags=re.MULTILINE)
    }


ROW = r"^\| `([^`]+/[^`]+)` \|.*\| ([^|]+) \|$"


def _said(cell: str, error: str) -> Row:
    reach = re.search(r"reaches (\d+) %", cell)
    if reach is None:
        stopped = re.fullmatch(r"\*\*(.+)\*\*", cell)
        return {"outcome": stopped[1], "error": error} if stopped else {"error": cell}
    share = int(reach[1]) / 100
    wrong = re.search(r"wrong output\*\* \((.+?)\)", cell)
    if wrong:
        return {"outcome": "differs", "difference": float(wrong[1]), "reach": share}
    return {"outcome": "ok", "reach": share, "trains": "does not train" not in cell}
