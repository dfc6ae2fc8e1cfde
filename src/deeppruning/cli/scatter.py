"""A scatter plot in characters: error against FLOPs, for a terminal.

>>> print(scatter([Point(0.0, 0.5, "."), Point(1.0, 0.1, "K")], width=9, height=3))
 50.0 % │.
        │
 10.0 % │        K
        └─────────
         0   M   1
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One network: what it costs in millions of FLOPs, its error (0..1) and the character it is shown as."""

    flops: float
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
    axis = f"{_number(left)}{'M':^{width - len(_number(left)) - len(_number(right))}}{_number(right)}"
    return "\n".join([*rows, f"{'':8}{corner}{line * width}", f"{'':9}{axis}"])


def _range(values: list[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (0.0, 1.0)


def _place(value: float, low: float, high: float, cells: int) -> int:
    return round((value - low) / (high - low) * (cells - 1)) if high > low else 0


def _number(value: float) -> str:
    return f"{value:.3g}"
