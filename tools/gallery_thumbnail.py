"""A small picture of a run: every candidate, error against FLOPs, with the networks that were chosen."""

from collections.abc import Mapping
from typing import Any

from deeppruning.roles import COLORS, kind_of

WIDTH, HEIGHT, MARGIN = 320, 180, 18
STYLE = """\
.card { fill: #ffffff; stroke: #dde0e4 } .one { fill: #8b97a6 } .front { fill: none; stroke: #8b97a6 }
.chosen { stroke: #ffffff; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  .card { fill: #151a21; stroke: #2c343e } .chosen { stroke: #151a21 }
}"""


def thumbnail_text(data: Mapping[str, Any]) -> str:
    """The picture as SVG; the same data gives the same text."""
    rows = {row["id"]: row for row in data["candidates"] if row["error"] is not None}
    most_flops = max(row["flops"] for row in rows.values())
    # A few hopeless candidates must not press all others against the axis.
    errors = sorted(row["error"] for row in rows.values())
    most_error = max(errors[int(0.9 * (len(errors) - 1))], 1e-9)

    def place(row: Mapping[str, Any]) -> tuple[str, str]:
        x = MARGIN + row["flops"] / most_flops * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - min(row["error"] / most_error, 1.0) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f}", f"{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}">',
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
    ]
    fronts = (data["archive"] or {}).get("fronts", [])
    front = [place(rows[id_]) for id_ in (fronts[-1]["ids"] if fronts else []) if id_ in rows]
    if len(front) > 1:
        parts.append(f'<polyline class="front" points="{" ".join(",".join(spot) for spot in front)}"/>')
    for row in rows.values():
        x, y = place(row)
        parts.append(f'<circle class="one" cx="{x}" cy="{y}" r="2.5"/>')
    for one in data["solutions"]:
        if one["id"] in rows:
            x, y = place(rows[one["id"]])
            color = COLORS[kind_of(one["role"])]
            parts.append(f'<circle class="chosen" cx="{x}" cy="{y}" r="6" fill="{color}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
