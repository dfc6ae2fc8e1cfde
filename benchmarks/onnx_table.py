"""The results of `onnx_files.py` as tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]


def table(rows: Sequence[Facts]) -> str:
    """What was imported and proven, and what thinning gave."""
    whole = [
        "| file | nodes, most frequent | parity | filters that can go | the rest | proofs | import | graph |",
        "|---|---|---|---|---|---|---|---|",
        *map(_imported, rows),
    ]
    thinned = [row for row in rows if "shares" in row]
    if thinned:
        whole += [
            "",
            "| file | search | FLOPs | answers that differ | distance | latency | file | boxes that stay |",
            "|---|---|---|---|---|---|---|---|",
            *(_thinned(row, share) for row in thinned for share in row["shares"]),
        ]
    return "\n".join(whole)


def _imported(row: Facts) -> str:
    operators = ", ".join(f"{count} {name}" for name, count in list(row["operators"].items())[:4])
    frozen = "; ".join(f"{count}: {reason}" for reason, count in row["frozen"].items()) or "-"
    proven = f"{sum(row['proofs'])} of {len(row['proofs'])}"
    return (
        f"| {row['file']} | {row['nodes']}: {operators} | {row['parity']:.0e} | {row['prunable']:,} of "
        f"{row['filters']:,} | {frozen} | {proven} | {row['import_s']:.1f} s | {row['graph_s']:.1f} s |"
    )


def _thinned(row: Facts, share: str) -> str:
    figures = row["shares"][share]
    answers = "-" if figures["answers"] is None else f"{100 * figures['answers']:.1f} %"
    boxes = f"{100 * figures['boxes']:.1f} % of {figures['found']}" if "boxes" in figures else "-"
    search = f"{row['search_s']:.0f} s, {row['candidates']} candidates"
    latency = f"{100 * figures['ratio']:.0f} % ({100 * figures['low']:.0f} to {100 * figures['high']:.0f})"
    size = f"{100 * figures['bytes'] / row['bytes']:.0f} % of {row['bytes'] / 1e6:.1f} MB"
    cells = [row["file"], search, f"{100 * figures['flops']:.1f} %", answers, f"{figures['distance']:.3f}"]
    return f"| {' | '.join([*cells, latency, size, boxes])} |"
