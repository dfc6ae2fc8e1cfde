"""The results of imagenet.py: a file of JSON lines, and the tables made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BEGIN, END = "<!-- tables of benchmarks/imagenet.py -->", "<!-- end of the tables -->"
ABOUT = ("kind", "network", "name", "method", "at", "threads", "images")
TITLES = {"mobilenet_v2": "MobileNet v2", "resnet50": "ResNet50"}


def read_rows(path: Path) -> list[Row]:
    """The results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_row(path: Path, row: Row) -> None:
    """Add a result, in place of an older one about the same."""
    others = [old for old in read_rows(path) if any(old.get(key) != row.get(key) for key in ABOUT)]
    path.write_text("".join(json.dumps(each) + "\n" for each in [*others, row]))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table in Markdown."""
    heads = list(heads)
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * len(heads),
        *("| " + " | ".join(cells) + " |" for cells in rows),
        "",
    ]


def write_tables(rows: list[Row], page: Path | None) -> None:
    """Print the tables, or write them into a page between its two marks."""
    lines: list[str] = []
    for make in (_searches, _tests, _latencies, _simulations):
        lines += make(rows)
    text = "\n".join(lines)
    if page is None:
        print(text)
        return
    whole = page.read_text() if page.exists() else f"# ImageNet\n\n{BEGIN}\n{END}\n"
    before, rest = whole.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}")


def _of(rows: list[Row], kind: str) -> list[Row]:
    found = [row for row in rows if row["kind"] == kind]
    return sorted(found, key=lambda row: (row["network"], -row.get("at", 0.0)))


def _searches(rows: list[Row]) -> list[str]:
    heads = ("network", "search", "photographs", "candidates", "points at 30-90 %", "passes")
    heads += ("processor seconds", "wall seconds", "threads x workers", "peak memory")
    cells = [
        (
            TITLES[row["network"]],
            row["name"],
            f"{row['photographs']:,}",
            str(row["candidates_seen"]),
            str(row["points"]),
            f"{row['passes']:,.0f}",
            f"{row['processor_seconds']:,.0f}",
            f"{row['wall_seconds']:,.0f}",
            f"{row['threads']} x {row['workers']}",
            f"{max(row['peak_mb'], row['worker_peak_mb']) / 1024:.1f} GB",
        )
        for row in _of(rows, "search")
    ]
    return ["### What a search costs", "", *table(heads, cells)] if cells else []


def _tests(rows: list[Row]) -> list[str]:
    tests = _of(rows, "test")
    lines: list[str] = []
    for network in dict.fromkeys(row["network"] for row in tests):
        own = [row for row in tests if row["network"] == network]
        whole = [row for row in _of(rows, "original") if row["network"] == network]
        lines += [f"### {TITLES[network]}: top-1 on `val` without any training", ""]
        lines += [f"The original: {row['top1']:.2%} of {row['images']:,} photographs." for row in whole]
        heads = ("asked for", "method", "FLOPs left", "top-1", "difference from the original, points")
        cells = [
            (
                f"{row['at']:.0%}",
                row["name"],
                f"{row['share']:.1%}",
                f"{row['top1']:.2%}",
                f"{100 * row['gap']:+.2f} ± {100 * row['error']:.2f}",
            )
            for row in own
        ]
        lines += ["", *table(heads, cells)]
    return lines


def _latencies(rows: list[Row]) -> list[str]:
    found = _of(rows, "latency")
    counts = sorted({row["threads"] for row in found})
    cells = []
    for key in dict.fromkeys((row["network"], row["name"], row["at"]) for row in found):
        own = {row["threads"]: row for row in found if (row["network"], row["name"], row["at"]) == key}
        share = next(iter(own.values()))["share"]
        times = [
            f"{own[count]['milliseconds']:.1f} ms ({own[count]['ratio']:.2f})" if count in own else ""
            for count in counts
        ]
        cells.append((TITLES[key[0]], key[1], f"{share:.1%}", *times))
    heads = ("network", "method", "FLOPs left", *(f"{count} thread{'s' * (count > 1)}" for count in counts))
    title = "### Latency of one photograph in onnxruntime, and its ratio to the original's"
    return [title, "", *table(heads, cells)] if cells else []


def _simulations(rows: list[Row]) -> list[str]:
    found = _of(rows, "simulation")
    counts = sorted({int(count) for row in found for count in row["workers"]})
    cells = [
        (
            TITLES[row["network"]],
            row["name"],
            f"{row['measured'] / 60:.0f} min",
            f"{row['alone'] / 60:.1f} min",
            *(f"{row['workers'][str(n)] / 60:.1f} min" if str(n) in row["workers"] else "" for n in counts),
            f"{row['gpu'] / 60:.1f} min ({row['gpu_images']:,.0f} images/s)",
        )
        for row in found
    ]
    heads = ("network", "search", "one core, measured", "of it by one process")
    heads += (*(f"{count} workers" for count in counts), "a GPU")
    return (
        ["### The same search elsewhere, estimated from these times", "", *table(heads, cells)]
        if cells
        else []
    )
