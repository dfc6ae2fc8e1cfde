"""A flat picture of lines, shapes and words, written as SVG and as PNG without a plotting library.

>>> picture = Drawing(40, 20)
>>> picture.circle(10, 10, 3, fill="#000000")
>>> picture.svg().count("<circle")
1
"""

import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from deeppruning.system.files import folder_within, write_atomically

FONT = "Helvetica, Arial, sans-serif"
SAMPLES = 2  # each pixel of the PNG is the mean of so many squared: smooth edges
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Shape:
    """A polygon or line through points, or (with one point) a circle; colours are #rrggbb or none."""

    points: Points
    radius: float = 0.0
    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0
    dash: float = 0.0  # length of strokes and gaps
    closed: bool = False


@dataclass(frozen=True)
class Words:
    """A line of text; `anchor` is start, middle or end, `upright` turns it by a quarter."""

    x: float
    y: float
    text: str
    size: float
    color: str
    anchor: str
    upright: bool


@dataclass
class Drawing:
    """A picture of a given size, drawn from back to front, in pixels of a screen."""

    width: float
    height: float
    parts: list[Shape | Words] = field(default_factory=list)

    def line(self, points: Points, stroke: str, width: float = 1.0, dash: float = 0.0) -> None:
        """A line through points."""
        self.parts.append(Shape(tuple(points), stroke=stroke, width=width, dash=dash))

    def area(self, points: Points, fill: str, stroke: str | None = None) -> None:
        """A filled polygon."""
        self.parts.append(Shape(tuple(points), fill=fill, stroke=stroke, closed=True))

    def rectangle(self, left: float, top: float, width: float, height: float, fill: str) -> None:
        """A filled rectangle."""
        right, bottom = left + width, top + height
        self.area([(left, top), (right, top), (right, bottom), (left, bottom)], fill)

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str | None = None) -> None:
        """A filled circle."""
        self.parts.append(Shape(((x, y),), radius=radius, fill=fill, stroke=stroke))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12.0,
        color: str = "#333333",
        anchor: str = "start",
        upright: bool = False,
    ) -> None:
        """A line of text whose middle height is at `y`; upright text reads from bottom to top."""
        self.parts.append(Words(x, y, text, size, color, anchor, upright))

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write the picture to the folder as NAME.svg and NAME.png, and return both paths."""
        folder_within(folder.parent, folder)
        paths = [folder / f"{name}.svg", folder / f"{name}.png"]
        for path, content in zip(paths, (self.svg().encode(), self.png()), strict=True):
            write_atomically(path, content)
        return paths

    def svg(self) -> str:
        """The picture as a standalone SVG document."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        body = "\n".join(
            _svg_words(part) if isinstance(part, Words) else _svg_shape(part) for part in self.parts
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}">\n'
            f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
        )

    def png(self, dots_per_pixel: int = 2) -> bytes:
        """The picture as PNG, by default with twice the dots of a plain screen."""
        factor = dots_per_pixel * SAMPLES
        image = Image.new("RGB", (round(self.width * factor), round(self.height * factor)), "#ffffff")
        pen = ImageDraw.Draw(image)
        for part in self.parts:
            if isinstance(part, Words):
                _paint_words(image, part, factor)
            else:
                _paint_shape(pen, part, factor)
        buffer = io.BytesIO()
        image.reduce(SAMPLES).save(buffer, "PNG")
        return buffer.getvalue()


def _svg_shape(shape: Shape) -> str:
    look = f'fill="{shape.fill or "none"}"'
    if shape.stroke:
        look += f' stroke="{shape.stroke}" stroke-width="{shape.width:g}"'
    if shape.dash:
        look += f' stroke-dasharray="{shape.dash:g}"'
    if len(shape.points) == 1:
        ((x, y),) = shape.points
        return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{shape.radius:g}" {look}/>'
    name = "polygon" if shape.closed else "polyline"
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
    return f'<{name} points="{points}" {look}/>'


def _svg_words(words: Words) -> str:
    turn = f' transform="rotate(-90 {words.x:.2f} {words.y:.2f})"' if words.upright else ""
    # Not every viewer knows dominant-baseline, so the middle is found by hand.
    y = words.y + 0.35 * words.size
    return (
        f'<text x="{words.x:.2f}" y="{y:.2f}" font-size="{words.size:g}" fill="{words.color}" '
        f'text-anchor="{words.anchor}"{turn}>{html.escape(_printable(words.text))}</text>'
    )


def _printable(text: str) -> str:
    """Without control characters, which no XML document may hold."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _paint_shape(pen: ImageDraw.ImageDraw, shape: Shape, factor: float) -> None:
    points = [(x * factor, y * factor) for x, y in shape.points]
    width = max(1, round(shape.width * factor))
    if len(points) == 1:
        ((x, y),), radius = points, shape.radius * factor
        corners = (x - radius, y - radius, x + radius, y + radius)
        pen.ellipse(corners, fill=shape.fill, outline=shape.stroke, width=width if shape.stroke else 0)
    elif shape.closed:
        pen.polygon(points, fill=shape.fill, outline=shape.stroke, width=width)
    else:
        for piece in _dashes(points, shape.dash * factor) if shape.dash else [points]:
            pen.line(piece, fill=shape.stroke, width=width, joint="curve")


def _dashes(points: Points, length: float) -> list[list[tuple[float, float]]]:
    """The pieces of a line that are drawn when strokes and gaps of one length alternate."""
    pieces: list[list[tuple[float, float]]] = []
    walked = 0.0
    for (x1, y1), (x2, y2) in pairwise(points):
        whole = math.hypot(x2 - x1, y2 - y1)
        at = 0.0
        while at < whole:
            step = min(length - walked % length or length, whole - at)
            if int((walked + step / 2) / length) % 2 == 0:
                a, b = at / whole, (at + step) / whole
                ends = [(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share) for share in (a, b)]
                pieces.append(ends)
            at += step
            walked += step
    return pieces


def _paint_words(image: Image.Image, words: Words, factor: float) -> None:
    font = ImageFont.load_default(size=words.size * factor)
    text = _printable(words.text)
    left, top, right, bottom = (math.ceil(edge) for edge in font.getbbox(text))
    mask = Image.new("L", (max(1, right - left), max(1, bottom - top)), 0)
    ImageDraw.Draw(mask).text((-left, -top), text, font=font, fill=255)
    x, y = words.x * factor, words.y * factor
    back = {"start": 0.0, "middle": 0.5, "end": 1.0}[words.anchor] * mask.width
    # As in the SVG, the baseline lies 0.35 of the size below the middle.
    ascent = float(font.getmetrics()[0]) if isinstance(font, ImageFont.FreeTypeFont) else float(bottom)
    lift = 0.35 * words.size * factor - (ascent - top)
    if words.upright:
        mask = mask.transpose(Image.Transpose.ROTATE_90)
        place = (round(x + lift), round(y + back - mask.height))
    else:
        place = (round(x - back), round(y + lift))
    image.paste(Image.new("RGB", mask.size, words.color), place, mask)
