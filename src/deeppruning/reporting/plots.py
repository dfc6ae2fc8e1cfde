"""The plots of a run as files for papers, drawn by matplotlib; the page draws its own.

matplotlib is an extra, imported when a plot is drawn. The same data gives the same bytes, whatever the user's
own matplotlib settings are.
"""

import html
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.reporting.section import SECTIONS
from deeppruning.roles import COLORS, HEAVY, KNEE, LIGHT, ORIGINAL, TARGET, in_order, kind_of
from deeppruning.runs.database import readable_errors
from deeppruning.runs.folder import HISTORY
from deeppruning.system.commands import has_extra, how_to_install
from deeppruning.system.files import folder_within, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RAMP = ("#aecbdb", "#7fa5d0", "#7b74bd", "#79429b", "#46115c")  # generations, first to last
OURS = "#3b4a8f"
INK, MUTED, TRACK = "#1b2330", "#59636f", "#dde0e4"
MARKERS = {HEAVY: "s", KNEE: "D", LIGHT: "^", TARGET: "v"}
OTHER_KIND = "others"
KIND_COLORS = {  # of the methods of a comparison
    "criteria": "#2878ab",
    "criteria with refit": "#12908c",
    "regularisation": "#1d7f61",
    "searches": "#b0601a",
    "floors": "#6b7480",
    OTHER_KIND: "#8d3f74",
}
DASHES = ("-", (0, (6, 3)), (0, (3, 3)), (0, (1.5, 1.5)), (0, (10, 3)))  # in turn, within a kind
LONGEST_NAME = 24
DPI = 100
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#b8bec6",
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": DPI,
    "font.size": 9,
    "grid.color": "#eceef0",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "deeppruning",  # the same ids every time
    "text.parse_math": False,  # a "$" in a name is a "$"
    "xtick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return has_extra("plots")


def missing_plots_line() -> str:
    """The message for a machine without matplotlib; empty where plots can be drawn."""
    if can_draw():
        return ""
    return f"no plots were written: they need matplotlib, installed by {how_to_install('matplotlib')}"


def write_plots(run_dir: Path | str) -> list[Path]:
    """Write the plots of a run to RUN/plots, each as SVG and PNG, and return their paths."""
    return draw_plots(collect(run_dir), Path(run_dir) / "plots")


def draw_plots(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write every plot that `data` has something for; none without matplotlib."""
    if not can_draw():
        return []
    with readable_errors(folder.parent / HISTORY):  # numbers that no axis reaches
        return [path for name, figure in draw(data).items() for path in save_plot(figure, folder, name)]


def draw(data: Mapping[str, Any]) -> dict[str, "Figure"]:
    """The plots by the names of their files; a run without fine-tuning has no plot of it."""
    plots = {name: plot for section in SECTIONS.values() for name, plot in section.plots.items()}
    figures = {name: plot(data) for name, plot in plots.items()}
    return {name: figure for name, figure in figures.items() if figure is not None}


def candidates_markup(run_dir: Path) -> str:
    """The plot of all candidates for a notebook; without matplotlib, a line that says how to get it."""
    if not can_draw():
        command = html.escape(how_to_install("matplotlib"))
        return f"<p>The plot of all candidates needs matplotlib: <code>{command}</code></p>"
    try:
        figure = population(collect(run_dir))
    except RunError:  # the folder was moved, deleted or damaged: the result is shown all the same
        return ""
    return "" if figure is None else svg(figure)


@contextmanager
def _plot_style() -> Iterator[None]:
    """matplotlib with our style and no other, inside the `with` block."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


@_plot_style()
def svg(figure: "Figure") -> str:
    """A plot as an SVG element."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata=_NO_METADATA)
    text = content.getvalue()
    return text[text.index("<svg") :]


@_plot_style()
def png(figure: "Figure") -> bytes:
    """A plot as PNG, with twice the dots of a plain screen."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=2 * DPI, metadata={"Software": None})
    return content.getvalue()


def save_plot(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write a plot as NAME.svg and NAME.png, and return both paths."""
    folder_within(folder.parent, folder)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    for path, content in zip(paths, (svg(figure).encode(), png(figure)), strict=True):
        write_atomically(path, content)
    return paths


@_plot_style()
def population(data: Mapping[str, Any]) -> "Figure | None":
    """Every candidate, error against cost, coloured by generation, the picks marked."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = [row for row in data["candidates"] if row["error"] is not None]
    if not rows:
        return None
    key, label = data["axes"][0]["key"], data["axes"][0]["label"]
    last = max(row["generation"] for row in rows)
    figure = Figure((6.4, 4.6))
    axes = figure.add_axes((0.11, 0.12, 0.76, 0.82), xlabel=label, ylabel="Error in the search")
    costs, errors, generations = zip(
        *((row[key], row["error"], row["generation"]) for row in rows), strict=True
    )
    colors = LinearSegmentedColormap.from_list("generations", RAMP, N=min(last, 48))
    axes.scatter(
        costs, errors, c=generations, cmap=colors, vmin=0.5, vmax=last + 0.5, s=34, edgecolors="white",
        linewidths=0.8, clip_on=False, zorder=3, gid="candidates",
    )  # fmt: skip
    _format_axes(axes, rows[0][key], share=data["error_is_share"])
    archive = data["archive"]
    ids = set(archive["fronts"][-1]["ids"]) if archive and archive["fronts"] else set()
    front = sorted((row for row in data["candidates"] if row["id"] in ids), key=lambda row: row[key])
    if len(front) > 1:
        points = [row[key] for row in front], [row["error"] for row in front]
        axes.plot(*points, color=MUTED, linewidth=1.2, label="best in its cost range")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)
    bar = figure.colorbar(axes.collections[0], cax=figure.add_axes((0.9, 0.12, 0.02, 0.82)))
    bar.set_label("Generation")
    bar.locator = MaxNLocator(integer=True)
    _mark_roles(axes, key, rows, marked(data))
    return figure


def marked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The candidates that hold roles: the latest picks, and those chosen for targets."""
    latest = data["picks"][-1] if data["picks"] else {}
    targets = [entry for entry in data["solutions"] if kind_of(entry["role"]) == TARGET]
    return {**latest, **{entry["role"]: entry.get("id") for entry in targets}}


def _mark_roles(
    axes: "Axes", key: str, rows: Sequence[Mapping[str, Any]], picks: Mapping[str, int | None]
) -> None:
    """Mark each pick and write its roles beside it, on the side with more room."""
    points = {row["id"]: (row[key], row["error"]) for row in rows}
    middle = sum(axes.get_xlim()) / 2
    for id_ in dict.fromkeys(picks[role] for role in in_order(picks)):
        if id_ not in points:
            continue
        roles = [role for role in in_order(picks) if picks[role] == id_]
        kind, right = kind_of(roles[0]), points[id_][0] < middle
        axes.plot(
            *points[id_], MARKERS[kind], color=COLORS[kind], markeredgecolor="white", markersize=9,
            clip_on=False, zorder=4,
        )  # fmt: skip
        axes.annotate(
            ", ".join(roles), points[id_], (8 if right else -8, 0), textcoords="offset points", color=INK,
            ha="left" if right else "right", va="center", zorder=5,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1},
        )  # fmt: skip


def _format_axes(axes: "Axes", cost: float | None, *, share: bool) -> None:
    """Ticks as people read them, and errors from 0 where that is near."""
    from matplotlib.ticker import EngFormatter

    if cost is not None and cost >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter())
    if share:
        axes.yaxis.set_major_formatter(_percent_tick)
    low, high = axes.get_ylim()
    if -0.1 * (high - low) < low < 0.15 * (high - low):
        axes.set_ylim(bottom=0)


def _percent_tick(value: float, _: object = None) -> str:
    return f"{100 * value:.3g} %"


@_plot_style()
def layers(data: Mapping[str, Any]) -> "Figure | None":
    """Filters kept in each layer that can be cut, one panel for each pick, the original behind."""
    from matplotlib.figure import Figure

    cut = [place for place, layer in enumerate(data["layers"]) if not layer["fixed"]]
    widths = {row["id"]: row["widths"] for row in data["candidates"]}
    roles = in_order(pick["role"] for pick in data["solutions"])
    picks = [pick for pick in data["solutions"] if pick["role"] in roles and pick["id"] in widths]
    if not cut or not picks:
        return None
    original = [data["layers"][place]["width"] for place in cut]
    figure = Figure((6.4, 0.7 + 1.3 * len(picks)), layout="constrained")
    for axes, pick in zip(figure.subplots(len(picks), squeeze=False)[:, 0], picks, strict=True):
        remaining = [widths[pick["id"]][place] for place in cut]
        axes.bar(range(len(cut)), original, width=0.92, color=TRACK)
        axes.bar(range(len(cut)), remaining, width=0.92, color=COLORS[kind_of(pick["role"])])
        gone = [place for place, width in enumerate(remaining) if width == 0]  # with its branch
        axes.plot(gone, [max(original) / 20] * len(gone), "x", color=MUTED, markersize=5)
        axes.set(ylabel="Filters", xticks=[], ylim=(0, 1.05 * max(original)), xlim=(-0.5, len(cut) - 0.5))
        axes.set_title(f"{pick['role']}, candidate {pick['id']}", loc="right", fontsize=9, color=INK)
    axes.set_xlabel("Layer, first to last", loc="right")
    return figure


@_plot_style()
def finetuning(data: Mapping[str, Any]) -> "Figure | None":
    """Test error (solid) and training error (dashed) of each curve, epoch by epoch."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    keys: dict[str, tuple[Any, float]] = {"test_error": ("-", 2.0), "train_error": ((0, (3, 3)), 1.2)}
    rows = [row for curve in data["curves"] for row in curve["epochs"]]
    if all(row[key] is None for row in rows for key in keys):
        return None
    figure = Figure((6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="Epoch", ylabel="Error")
    handles = []
    original = (data["original"] or {}).get("test_error")
    if original is not None:
        handles.append(axes.axhline(original, color=COLORS[ORIGINAL], linewidth=1.2, label=ORIGINAL))
    for curve in data["curves"]:
        color = COLORS.get(kind_of(curve["roles"][0]) if curve["roles"] else "", OURS)
        for key, (dash, width) in keys.items():
            points = [(row["epoch"], row[key]) for row in curve["epochs"] if row[key] is not None]
            if points:
                marker = "o" if len(points) == 1 else None
                axes.plot(*zip(*points, strict=True), ls=dash, lw=width, color=color, marker=marker, ms=4)
        name = ", ".join(curve["roles"]) or curve["name"]
        handles.append(Line2D([], [], color=color, linewidth=2, label=_legend_name(name)))
    for name, (dash, width) in zip(("test error", "training error"), keys.values(), strict=True):
        handles.append(Line2D([], [], color=MUTED, linestyle=dash, linewidth=width, label=name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _format_axes(axes, None, share=data["error_is_share"])
    figure.legend(handles=handles, loc="outside right upper")
    return figure


@_plot_style()
def rivals(data: Mapping[str, Any]) -> "Figure | None":
    """Mean test error after fine-tuning of each method of a comparison, against FLOPs."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    comparison = data["rivals"]
    if comparison is None:
        return None
    methods = comparison["methods"]
    figure = Figure((7.2, max(5.4, 1.5 + 0.17 * len(methods))), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel="FLOPs, fraction of the original's", ylabel="Test error")
    original = axes.axhline(comparison["original_error"], color=INK, lw=1, ls=":", label=ORIGINAL)
    looks = _looks_of_methods(methods)
    lines = []
    for method in sorted(methods, key=lambda method: bool(method["ours"])):  # ours on top
        points = sorted((point["share"], point["after"]) for point in method["points"] if point)
        line = axes.plot(
            *zip(*points, strict=True),
            **looks[method["name"]],
            marker="o",
            label=_legend_name(method["label"]),
        )[0]
        lines.append((points[0][1], line))
        if method["ours"]:
            _deviation_band(axes, method)
    low, high = axes.get_xlim()
    if high - low < 0.1:  # methods miss a target by a filter or two: a single one must not fill the axis
        axes.set_xlim((low + high) / 2 - 0.05, (low + high) / 2 + 0.05)
    axes.xaxis.set_major_formatter(_percent_tick)
    _format_axes(axes, None, share=True)
    # Named in the order of the lines' left ends, where they are furthest apart.
    handles = [line for _, line in sorted(lines, key=lambda entry: -entry[0])]
    figure.legend(handles=[*handles, original], loc="outside right upper", fontsize=8, labelspacing=0.2)
    kinds = {method["kind"] for method in methods if not method["ours"]}
    keys = [Line2D([], [], color=color, label=kind) for kind, color in KIND_COLORS.items() if kind in kinds]
    figure.legend(handles=keys, loc="outside lower left", ncols=3, fontsize=8)
    axes.set_title(_seeds_in_words(*comparison["seeds"]), loc="right", fontsize=8, color=MUTED)
    return figure


def _deviation_band(axes: "Axes", method: Mapping[str, Any]) -> None:
    """One standard deviation to either side."""
    points = [point for point in method["points"] if point and point["spread"] is not None]
    points.sort(key=lambda point: float(point["share"]))
    shares, errors, spreads = ([point[key] for point in points] for key in ("share", "after", "spread"))
    low, high = ([e + sign * s for e, s in zip(errors, spreads, strict=True)] for sign in (-1, 1))
    axes.fill_between(shares, low, high, color=OURS, alpha=0.15, linewidth=0)


def _looks_of_methods(methods: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """How each method's line looks: the colour tells the kind, the dash the method."""
    looks: dict[str, dict[str, Any]] = {}
    by_kind: dict[str, int] = {}
    # By name, so that a method looks the same in the plots of two comparisons of the same methods.
    for method in sorted(methods, key=lambda method: str(method["name"])):
        if method["ours"]:
            looks[method["name"]] = {"color": OURS, "lw": 3.5, "ls": "-", "ms": 8, "markeredgecolor": "white"}
            continue
        place = by_kind[method["kind"]] = by_kind.get(method["kind"], -1) + 1
        width = 1.5 if place < len(DASHES) else 0.9
        dash = DASHES[place % len(DASHES)]
        looks[method["name"]] = {"color": KIND_COLORS[method["kind"]], "lw": width, "ls": dash, "ms": 3.5}
    return looks


def _seeds_in_words(low: int, high: int) -> str:
    if high == 1:
        return "1 seed"
    seeds = f"{high}" if low == high else f"{low} to {high}"
    return f"mean of {seeds} seeds; band: ± one standard deviation"


def _legend_name(name: str) -> str:
    """A name for a legend: not too long, and without control characters, which no XML document may hold."""
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 3]}..."
