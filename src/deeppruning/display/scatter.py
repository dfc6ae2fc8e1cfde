"""A scatter plot in characters: error against FLOPs, for a terminal.

>>> print(scatter([Point(1000, 0.5, "."), Point(2500, 0.1, "K")], width=24, height=3))
 50.0 % │.
        │
 10.0 % │                       K
        └────────────────────────
         1.00 k   FLOPs    2.50 k
"""

from collections.abc import Iterable
from dataclasses import dataclass

from deeppruning.amounts import amount


@dataclass(frozen=True)
class Point:
    """One network: its FLOPs, its error (0..1) and the character it is shown as."""

    flops: int
    error: float
    mark: str


def scatter(points: Iterable[Point], *, width: int = 56, height: int = 12, plain: bool = False) -> str:
    """The points in a frame, later ones over earlier ones; `plain` for terminals without line characters."""
    shown = list(points)
    left, right = _range([point.flops for point in shown])
    low, high = _range([point.error for point in shown])
    cells = [[" "] * width for _ in range(height)]
    for point in shown:
        column = _place(point.flops, left, right, width)
        row = height - 1 - _place(point.error, low, high, height)
        cells[row][column] = point.mark
    side, corner, line = ("|", "+", "-") if plain else ("│", "└", "─")
    labels = {0: f"{100 * high:5.1f} %", height - 1: f"{100 * low:5.1f} %"}
    rows = [f"{labels.get(row, ''):>7} {side}{''.join(cells[row])}".rstrip() for row in range(height)]
    first, last = amount(left, like=right), amount(right)
    axis = f"{first}{'FLOPs':^{width - len(first) - len(last)}}{last}"
    return "\n".join([*rows, f"{'':8}{corner}{line * width}", f"{'':9}{axis}"])


def _range(values: list[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (0.0, 1.0)


def _place(value: float, low: float, high: float, cells: int) -> int:
    return round((value - low) / (high - low) * (cells - 1)) if high > low else 0
