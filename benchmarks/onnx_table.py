"""The results of `onnx_files.py` as tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]


def tables(rows: Sequence[Facts]) -> str:
    """What was imported and proven, and what thinning gave; the files of the zoo in a table of their own."""
    thinned = [row for row in rows if "shares" in row]
    imported = [row for row in rows if "shares" not in row]
    zoo = [row for row in imported if " by " in row["file"]]
    parts = [_imported([row for row in imported if row not in zoo]), _imported(zoo)]
    if thinned:
        heads = "file", "search", "FLOPs", "other answers", "distance", "latency", "size", "boxes that stay"
        shares = [(row, share) for row in thinned for share in sorted(row["shares"], reverse=True)]
        parts.insert(1, _table(heads, [_thinned(row, share) for row, share in shares]))
    return "\n\n".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))


def _imported(rows: Sequence[Facts]) -> str:
    heads = ("file", "nodes", "difference", "filters that can go", "why not the rest", "cuts proven",
             "import", "graph")  # fmt: skip
    return _table(heads, [_import(row) for row in rows])


def _import(row: Facts) -> list[str]:
    operators = ", ".join(f"{count} {name}" for name, count in list(row["operators"].items())[:4])
    frozen = "; ".join(f"{count}: {reason}" for reason, count in row["frozen"].items()) or "-"
    return [
        row["file"], f"{row['nodes']}: {operators}", f"{row['parity']:.0e}",
        f"{row['prunable']:,} of {row['filters']:,}", frozen,
        f"{sum(row['proofs'])} of {len(row['proofs'])}",
        f"{row['import_s']:.1f} s", f"{row['graph_s']:.1f} s",
    ]  # fmt: skip


def _thinned(row: Facts, share: str) -> list[str]:
    figures = row["shares"][share]
    answers = "-" if figures["answers"] is None else f"{100 * figures['answers']:.1f} %"
    boxes = f"{100 * figures['boxes']:.1f} % of {figures['found']}" if "boxes" in figures else "-"
    search = f"{'over ' if row['resumed'] else ''}{row['search_s']:.0f} s, {row['points']} points"
    latency = f"{100 * figures['ratio']:.0f} % ({100 * figures['low']:.0f} to {100 * figures['high']:.0f})"
    size = f"{100 * figures['bytes'] / row['bytes']:.0f} % of {row['bytes'] / 1e6:.1f} MB"
    cells = [row["file"], search, f"{100 * figures['flops']:.1f} %", answers, f"{figures['distance']:.3f}"]
    return [*cells, latency, size, boxes]
