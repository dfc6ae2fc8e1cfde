"""Scales, ticks and frames of the plots that are written as files."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deeppruning.reporting.drawing import Drawing

GRID, LINE, TEXT = "#eceef0", "#b8bec6", "#59636f"


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` laid along pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    text: Callable[[float], str]
    label: str
    whole: bool = False

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        text: Callable[[float], str],
        *,
        label: str,
        zero: bool = False,
    ) -> "Axis":
        """An axis with a little room around the values; with `zero`, from 0 where that is near."""
        low, high = min(values), max(values)
        room = 0.05 * ((high - low) or abs(high) or 1.0)
        start_low = 0.0 if zero and low - room < 0.15 * (high - low) else low - room
        return cls(start_low, high + room, start, end, text, label)

    def at(self, value: float) -> float:
        """Where a value lies."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, wanted: int) -> list[float]:
        """Round values about as many as wanted.

        >>> Axis(0, 0.45, 0, 100, percent, "").ticks(5)
        [0.0, 0.1, 0.2, 0.3, 0.4]
        """
        rough = (self.high - self.low) / wanted
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-6)
        found = [round(index * step, 12) for index in range(first, last + 1)]
        return [tick for tick in found if not self.whole or float(tick).is_integer()]


@dataclass(frozen=True)
class Frame:
    """Two axes."""

    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a pair of values lies."""
        return self.x.at(x), self.y.at(y)


def draw_frame(drawing: Drawing, frame: Frame, *, ticks_x: bool = True) -> None:
    """Grid, ticks with their values, and the names of the axes."""
    x, y = frame.x, frame.y
    left = min(x.start, 70.0)
    for tick in y.ticks(6 if abs(y.start - y.end) > 200 else 3):
        drawing.line([(left, y.at(tick)), (x.end, y.at(tick))], GRID)
        drawing.text(left - 8, y.at(tick), y.text(tick), size=11, color=TEXT, anchor="end")
    if ticks_x:
        for tick in x.ticks(6):
            drawing.line([(x.at(tick), y.start), (x.at(tick), y.end)], GRID)
            drawing.text(x.at(tick), y.start + 14, x.text(tick), size=11, color=TEXT, anchor="middle")
    drawing.line([(left, y.start), (x.end, y.start)], LINE)
    if x.label:
        drawing.text((left + x.end) / 2, y.start + 33, x.label, color=TEXT, anchor="middle")
    drawing.text(16, (y.start + y.end) / 2, y.label, color=TEXT, anchor="middle", upright=True)


def percent(value: float) -> str:
    """
    >>> percent(0.125)
    '12.5 %'
    """
    return f"{value * 100:.3g} %"


def number(value: float) -> str:
    """A number short enough for a tick.

    >>> number(40_551_040), number(0.0025), number(3)
    ('40.6 M', '0.0025', '3')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"
