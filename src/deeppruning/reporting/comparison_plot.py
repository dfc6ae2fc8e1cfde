"""The comparison with other methods as a plot for papers: a line for each, test error against FLOPs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.reporting.axes import LINE, TEXT, Axis, Frame, draw_frame, percent
from deeppruning.reporting.comparison import OTHER_KIND, read_rivals
from deeppruning.reporting.drawing import Drawing
from deeppruning.roles import ORIGINAL

OURS_COLOR, OURS_BAND, ORIGINAL_COLOR = "#3b4a8f", "#e3e6f3", "#1b2330"
KIND_COLORS = {
    "criteria": "#2878ab",
    "criteria with refit": "#12908c",
    "regularisation": "#1d7f61",
    "searches": "#b0601a",
    "floors": "#6b7480",
    OTHER_KIND: "#8d3f74",
}
DASHES = (0.0, 6.0, 3.0, 1.5, 10.0)  # in turn, within a kind
LONGEST_NAME = 24
NAMES_END, LINES_START, LINES_END = 196.0, 216.0, 700.0
TOP, LEAST_HEIGHT, BELOW = 24.0, 426.0, 90.0  # of the frame, and what stands below it
NAME_GAP = 13.0


def write_rivals_plot(folder: Path) -> Path | None:
    """Write plots/rivals.svg and .png in the folder of a comparison; the path of the SVG, or None without."""
    drawing = rivals({"rivals": read_rivals(folder)})
    return None if drawing is None else drawing.save(folder / "plots", "rivals")[0]


def rivals(data: Mapping[str, Any]) -> Drawing | None:
    """Mean test error after fine-tuning by method, named where the lines are furthest apart: at the left."""
    found = data["rivals"]
    if found is None:
        return None
    frame = _frame(found)
    drawing = Drawing(720, round(frame.y.start + BELOW))
    ours = [method for method in found["methods"] if method["ours"]]
    for method in ours:
        _band(drawing, frame, method)
    draw_frame(drawing, frame)
    level = frame.y.at(found["original_error"])
    drawing.line([(LINES_START, level), (LINES_END, level)], ORIGINAL_COLOR, 1.0, 2.0)
    looks = _looks(found["methods"])
    _names(drawing, frame, found, looks)
    # The last is drawn on top.
    for method in [method for method in found["methods"] if not method["ours"]] + ours:
        color, width, dash = looks[method["name"]]
        points = _points(method, frame)
        if len(points) > 1:
            drawing.line(points, color, width, dash)
        for x, y in points:
            drawing.circle(x, y, 4.0 if method["ours"] else 2.2, color, "#ffffff" if method["ours"] else None)
    _key(drawing, found, frame.y.start)
    return drawing


def _frame(found: Mapping[str, Any]) -> Frame:
    points = [point for method in found["methods"] for point in method["points"] if point]
    shares = [point["share"] for point in points]
    # Methods meet a target but for a filter or two: a single target must not fill the whole axis.
    room = max(0.0, 0.1 - (max(shares) - min(shares))) / 2
    errors = [point["after"] for point in points]
    for method in found["methods"]:
        if method["ours"]:  # room for the band
            errors += [
                point["after"] + sign * (point["spread"] or 0.0)
                for point in method["points"]
                if point
                for sign in (-1, 1)
            ]
    x = Axis.over(
        [min(shares) - room, max(shares) + room],
        LINES_START,
        LINES_END,
        percent,
        label="FLOPs, share of the original's",
    )
    # Many methods need room for their names, the original's among them.
    bottom = TOP + max(LEAST_HEIGHT, NAME_GAP * len(found["methods"]) + 10.0)
    y = Axis.over([*errors, found["original_error"]], bottom, TOP, percent, label="Test error", zero=True)
    return Frame(x, y)


def _points(method: Mapping[str, Any], frame: Frame) -> list[tuple[float, float]]:
    known = [point for point in method["points"] if point]
    return sorted(frame.at(point["share"], point["after"]) for point in known)


def _band(drawing: Drawing, frame: Frame, method: Mapping[str, Any]) -> None:
    """One standard deviation to either side."""
    known = sorted(
        (point["share"], point["after"], point["spread"])
        for point in method["points"]
        if point and point["spread"] is not None
    )
    upper = [frame.at(share, error + spread) for share, error, spread in known]
    lower = [frame.at(share, error - spread) for share, error, spread in known]
    if len(known) > 1:
        drawing.area(upper + lower[::-1], OURS_BAND)


def _looks(methods: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, float, float]]:
    """Colour, width and dash of each method's line: the colour tells the kind, the dash the method."""
    looks = {}
    by_kind: dict[str, int] = {}
    # By name, so that a method looks the same in the plots of two comparisons of the same methods.
    for method in sorted(methods, key=lambda method: str(method["name"])):
        place = by_kind.get(method["kind"], 0)
        if method["ours"]:
            looks[method["name"]] = (OURS_COLOR, 3.5, 0.0)
            continue
        by_kind[method["kind"]] = place + 1
        width = 1.5 if place < len(DASHES) else 0.9
        looks[method["name"]] = (KIND_COLORS[method["kind"]], width, DASHES[place % len(DASHES)])
    return looks


def _names(
    drawing: Drawing, frame: Frame, found: Mapping[str, Any], looks: Mapping[str, tuple[str, float, float]]
) -> None:
    """A name for each line, in the order of the lines' left ends, with a thin line that leads there."""
    ends = [(frame.y.at(found["original_error"]), LINES_START, ORIGINAL, ORIGINAL_COLOR)]
    for method in found["methods"]:
        x, y = _points(method, frame)[0]
        ends.append((y, x, _shortened(method["label"]), looks[method["name"]][0]))
    ends.sort()
    levels = spread_apart([end[0] for end in ends], NAME_GAP, frame.y.end, frame.y.start - 10)
    for (y, x, name, color), level in zip(ends, levels, strict=True):
        drawing.line([(NAMES_END + 4, level), (x, y)], LINE, 0.7)
        drawing.text(NAMES_END, level, name, size=11, color=color, anchor="end")


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "..."


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending places at least `gap` apart between low and high, each as near as can be to the one wanted.

    >>> spread_apart([10.0, 11.0, 50.0], 10.0, 0.0, 100.0)
    [5.5, 15.5, 50.0]
    """
    gap = min(gap, (high - low) / max(1, len(wanted) - 1))
    # Blocks of names that touch: where the first of them stands, and how many they are.
    blocks: list[tuple[float, int]] = []
    for place in wanted:
        start, count = min(max(place, low), high), 1
        while blocks and blocks[-1][0] + gap * blocks[-1][1] > start:
            above, more = blocks.pop()
            mean = (above * more + (start - gap * more) * count) / (more + count)
            count += more
            start = min(max(mean, low), high - gap * (count - 1))
        blocks.append((start, count))
    return [start + gap * place for start, count in blocks for place in range(count)]


def _key(drawing: Drawing, found: Mapping[str, Any], bottom: float) -> None:
    entries = [(kind, KIND_COLORS[kind], 1.5) for kind in KIND_COLORS if _has_kind(found, kind)]
    if any(method["ours"] for method in found["methods"]):
        entries.insert(0, ("DeepPruningES", OURS_COLOR, 3.5))
    x, y = 70.0, bottom + 60.0
    for name, color, width in entries:
        wide = 26 + 5.7 * len(name)
        if x + wide > LINES_END:
            x, y = 70.0, y + 18.0
        drawing.line([(x, y), (x + 20, y)], color, width)
        drawing.text(x + 26, y, name, size=11, color=TEXT)
        x += wide + 24
    low, high = found["seeds"]
    seeds = f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
    band = "; band: ± one standard deviation" if high > 1 else ""
    note = f"mean of {seeds}{band}" if high > 1 else seeds
    drawing.text(LINES_END, bottom + 78, note, size=11, color=TEXT, anchor="end")


def _has_kind(found: Mapping[str, Any], kind: str) -> bool:
    return any(method["kind"] == kind and not method["ours"] for method in found["methods"])
