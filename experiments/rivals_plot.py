"""The plot docs/results/rivals.svg, from the first table of docs/results/rivals.md.

Example: python experiments/rivals_plot.py
"""

import re
from pathlib import Path
from typing import Any

from deeppruning.comparison.methods.searching import RandomWidths
from deeppruning.reporting.plots import rivals, svg

PAGE = Path(__file__).parent.parent / "docs" / "results" / "rivals.md"
ORIGINAL_ERROR = 0.086  # as the page says
SEEDS = 2
CELL = re.compile(r"[\d.]+ → \*\*([\d.]+)\*\* ± ([\d.]+)")


def comparison(page: str) -> dict[str, Any]:
    """The rows of the first table, in the form in which a report draws a comparison."""
    lines = page.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| method |"))
    shares = [float(share) / 100 for share in re.findall(r"(\d+) %", lines[start])]
    methods = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name = line.split("`")[1]
        points = [
            {"share": share, "after": float(error) / 100, "spread": float(spread) / 100}
            for share, (error, spread) in zip(shares, CELL.findall(line), strict=True)
        ]
        row = {"name": name, "label": name, "kind": kind(name), "ours": name == "guided", "points": points}
        methods.append(row)
    return {"original_error": ORIGINAL_ERROR, "methods": methods, "seeds": [SEEDS, SEEDS]}


def kind(name: str) -> str:
    """The kind of a method, by its name."""
    if name == RandomWidths.name:
        return RandomWidths.kind
    return "searches" if name == "guided" else "criteria with refit" if "+" in name else "criteria"


if __name__ == "__main__":
    figure = rivals({"rivals": comparison(PAGE.read_text(encoding="utf-8"))})
    assert figure is not None
    PAGE.with_suffix(".svg").write_text(svg(figure), encoding="utf-8")
