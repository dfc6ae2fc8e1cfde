"""The plots of the page as files for papers: the objective space, the layers, the fine-tuning, the rivals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.reporting.axes import Axis, Frame, draw_frame, number, percent
from deeppruning.reporting.data import collect
from deeppruning.reporting.drawing import Drawing
from deeppruning.reporting.section import SECTIONS
from deeppruning.roles import COLORS, ORIGINAL, ROLES, SHAPES, TARGET, in_order, kind_of
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import HISTORY

RAMP = ("#aecbdb", "#7fa5d0", "#7b74bd", "#79429b", "#46115c")
OTHER = "#3b4a8f"
INK, MUTED, TRACK = "#1b2330", "#59636f", "#dde0e4"
LETTER = 7.0  # dots that a letter takes, about


def write_plots(run_dir: Path | str) -> list[Path]:
    """Write the plots of a run to RUN/plots, each as SVG and PNG, and return their paths."""
    return draw_plots(collect(run_dir), Path(run_dir) / "plots")


def draw_plots(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write what `data` has something for: a run without fine-tuning has no such plot."""
    drawn = draw(data, folder.parent)
    return [path for name, drawing in drawn.items() for path in drawing.save(folder, name)]


def draw(data: Mapping[str, Any], run_dir: Path) -> dict[str, Drawing]:
    """The plots by name, not written yet."""
    plots = {name: plot for section in SECTIONS.values() for name, plot in section.plots.items()}
    with readable_errors(run_dir / HISTORY):  # numbers that no axis reaches
        drawn = {name: plot(data) for name, plot in plots.items()}
    return {name: drawing for name, drawing in drawn.items() if drawing is not None}


def population(data: Mapping[str, Any]) -> Drawing | None:
    """Every candidate, error against cost, coloured by generation, the picks marked."""
    shown = [row for row in data["candidates"] if row["error"] is not None]
    if not shown:
        return None
    axis = data["axes"][0]
    drawing = Drawing(640, 460)
    text = percent if data["error_is_share"] else number
    frame = Frame(
        Axis.over([row[axis["key"]] for row in shown], 70, 620, number, label=axis["label"]),
        Axis.over([row["error"] for row in shown], 390, 30, text, label="Error in the search", zero=True),
    )
    draw_frame(drawing, frame)
    front = _front(data)
    if len(front) > 1:
        drawing.line([frame.at(row[axis["key"]], row["error"]) for row in front], MUTED, 1.2)
        drawing.text(620, 14, "line: best of each bin of cost", size=11, color=MUTED, anchor="end")
    last = max(row["generation"] for row in shown)
    for row in sorted(shown, key=lambda row: row["generation"]):
        drawing.circle(*frame.at(row[axis["key"]], row["error"]), 4, ramp(row["generation"], last), "#ffffff")
    by_id = {row["id"]: row for row in shown}
    picks = marked(data)
    spots = [frame.at(row[axis["key"]], row["error"]) for row in shown]
    for role in in_order(picks):
        if picks[role] in by_id:
            row = by_id[picks[role]]
            x, y = frame.at(row[axis["key"]], row["error"])
            _marker(drawing, role, x, y)
            left, top = _free_place(x, y, LETTER * len(role), spots)
            drawing.text(left, top, role, color=INK)
            spots += [(left + LETTER * step, top) for step in range(len(role))]
    _generation_key(drawing, last, tuple(dict.fromkeys((*ROLES, *map(kind_of, in_order(picks))))))
    return drawing


def marked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The candidates that hold roles: the latest picks, and what was chosen for targets."""
    latest = data["picks"][-1] if data["picks"] else {}
    chosen = {
        entry["role"]: entry.get("id") for entry in data["solutions"] if kind_of(entry["role"]) == TARGET
    }
    return {**latest, **chosen}


def _front(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the archive of the search holds, by the axis of the plot; nothing where there is none."""
    archive, key = data["archive"], data["axes"][0]["key"]
    held = set(archive["fronts"][-1]["ids"]) if archive and archive["fronts"] else set()
    return sorted((row for row in data["candidates"] if row["id"] in held), key=lambda row: row[key])


def _free_place(
    x: float, y: float, width: float, spots: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Where a label of this width beside a point covers the fewest spots, and stays in the picture."""

    def price(place: tuple[float, float]) -> float:
        left, top = place
        covered = sum(left - 5 < a < left + width + 5 and abs(b - top) < 11 for a, b in spots)
        outside = left < 70 or left + width > 632 or not 12 < top < 384
        return covered + 1000.0 * outside + abs(top - y) / 100

    tries = [(left, y + lift) for lift in (0, -15, 15, -28, 28) for left in (x + 11, x - 11 - width)]
    return min(tries, key=price)


def _generation_key(drawing: Drawing, last: int, roles: Sequence[str]) -> None:
    x, y = 70.0, 445.0
    drawing.text(x, y, "generation 1", size=11, color=MUTED)
    steps = min(last, 120)  # no more than there are pixels
    for step in range(steps):
        generation = 1 + step * (last - 1) // max(1, steps - 1)
        drawing.rectangle(x + 72 + 120 * step / steps, y - 5, 120 / steps, 10, ramp(generation, last))
    drawing.text(x + 198, y, str(last), size=11, color=MUTED)
    for place, role in enumerate(roles):
        left = 625 - 75 * (len(roles) - place)
        _marker(drawing, role, left, y)
        drawing.text(left + 11, y, role, size=11, color=MUTED)


def _marker(drawing: Drawing, role: str, x: float, y: float) -> None:
    drawing.area(
        [(x + left, y + top) for left, top in SHAPES[kind_of(role)]], COLORS[kind_of(role)], "#ffffff"
    )


def ramp(generation: int, last: int) -> str:
    """The colour of a generation, from pale to dark.

    >>> ramp(1, 3), ramp(3, 3)
    ('#aecbdb', '#46115c')
    """
    place = (len(RAMP) - 1) * (generation - 1) / (last - 1) if last > 1 else len(RAMP) - 1.0
    low = min(len(RAMP) - 2, int(place))
    pairs = [(int(RAMP[low][at : at + 2], 16), int(RAMP[low + 1][at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs)


def layers(data: Mapping[str, Any]) -> Drawing | None:
    """Filters kept in each layer that can be cut, one panel for each pick, the original behind."""
    cut = [place for place, layer in enumerate(data["layers"]) if not layer["fixed"]]
    by_id = {row["id"]: row for row in data["candidates"]}
    roles = in_order(pick["role"] for pick in data["solutions"])
    picks = [pick for pick in data["solutions"] if pick["role"] in roles and pick["id"] in by_id]
    if not cut or not picks:
        return None
    widest = max(data["layers"][place]["width"] for place in cut)
    drawing = Drawing(640, 40 + 130 * len(picks) + 24)
    for row, pick in enumerate(picks):
        top = 30 + 130 * row
        x = Axis(0, len(cut), 70, 620, lambda _: "", label="")
        y = Axis(0, widest * 1.05, top + 100, top, number, label="Filters")
        draw_frame(drawing, Frame(x, y), ticks_x=False)
        step = 550 / len(cut)
        for place, layer in enumerate(cut):
            left, gap = 70 + step * place, min(2.0, step * 0.2)
            for value, color in (
                (data["layers"][layer]["width"], TRACK),
                (by_id[pick["id"]]["widths"][layer], COLORS[kind_of(pick["role"])]),
            ):
                height = y.at(0) - y.at(value)
                drawing.rectangle(left, y.at(0) - height, step - gap, height, color)
            if by_id[pick["id"]]["widths"][layer] == 0:  # gone with its branch
                _cross(drawing, left + (step - gap) / 2, y.at(0) - 6)
        drawing.text(620, top - 14, f"{pick['role']}, candidate {pick['id']}", color=INK, anchor="end")
    drawing.text(620, drawing.height - 18, "Layer, first to last", color=MUTED, anchor="end")
    return drawing


def _cross(drawing: Drawing, x: float, y: float) -> None:
    # Not as a letter: fonts of pictures lack it.
    for slope in (-3, 3):
        drawing.line([(x - 3, y - slope), (x + 3, y + slope)], MUTED, 1.2)


def finetuning(data: Mapping[str, Any]) -> Drawing | None:
    """Test error (solid) and training error (dashed) of each curve, epoch by epoch."""
    keys = {"train_error": 4.0, "test_error": 0.0}
    rows = [row for curve in data["curves"] for row in curve["epochs"]]
    values = [row[key] for row in rows for key in keys if row[key] is not None]
    if not values:
        return None
    base = (data["original"] or {}).get("test_error")
    drawing = Drawing(640, 420)
    names = [", ".join(curve["roles"]) or curve["name"] for curve in data["curves"]]
    right = min(540.0, 622 - LETTER * max(map(len, names)))
    text = percent if data["error_is_share"] else number
    first = min(row["epoch"] for row in rows)  # 0, before training, where that is known
    frame = Frame(
        Axis(
            first,
            max(first + 1, *(row["epoch"] for row in rows)),
            78,
            right,
            number,
            label="Epoch",
            whole=True,
        ),
        Axis.over([*values, *([] if base is None else [base])], 360, 30, text, label="Error", zero=True),
    )
    draw_frame(drawing, frame)
    ends: list[tuple[float, str, str]] = []
    if base is not None:
        level = frame.y.at(base)
        drawing.line([(70, level), (right, level)], COLORS[ORIGINAL], 1.2)
        ends.append((level, ORIGINAL, COLORS[ORIGINAL]))
    for curve, name in zip(data["curves"], names, strict=True):
        color = COLORS.get(kind_of(curve["roles"][0]) if curve["roles"] else "", OTHER)
        for key, dash in keys.items():
            points = [frame.at(row["epoch"], row[key]) for row in curve["epochs"] if row[key] is not None]
            if len(points) > 1:
                drawing.line(points, color, 1.2 if dash else 2.0, dash)
            if points and (key == "test_error" or base is None):
                drawing.circle(*points[-1], 3, color)
        if points:
            ends.append((points[-1][1], name, color))
    # From the bottom up, each name as high as its line ends or as the name below leaves room for.
    ceiling = frame.y.start + 14
    for level, name, color in sorted(ends, reverse=True):
        ceiling = min(level, ceiling - 14)
        drawing.text(right + 10, ceiling, name, color=color)
    drawing.text(620, 405, "solid: test error; dashed: training error", size=11, color=MUTED, anchor="end")
    return drawing
