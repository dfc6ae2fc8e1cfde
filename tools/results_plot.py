"""The plot of the README, docs/results/summary.svg: error of ResNet56 against latency and against FLOPs.

Two panels, as the paper names FLOPs only. The picture brings its own background for light and for dark pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from readme_results import ratio
from results_lines import OURS, PAPER, RESULTS, Measured, measured

PLOT = RESULTS / "summary.svg"
NETWORK, DATA = "ResNet56", "CIFAR-10"
WIDTH, HEIGHT = 560, 590
LEFT, RIGHT, PANEL = 62, 34, 190  # margins and the height of a panel, in pixels
TOPS = (60, 340)
ERRORS = (6, 14)  # in %, of both panels
STYLE = """\
.card { fill: #ffffff } .grid { stroke: #e3e6ea } .name { fill: #1b2330; font-weight: 600 }
text { font: 14px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif }
text:not([class]) { fill: #59636f }
.original { --one: #1b2330 } .ours { --one: #3b4a8f } .l1 { --one: #a4510f } .paper { --one: #12726f }
@media (prefers-color-scheme: dark) {
  .card { fill: #151a21 } .grid { stroke: #2c343e } .name { fill: #e8ebef }
  text:not([class]) { fill: #a9b2bd }
  .original { --one: #e8ebef } .ours { --one: #a3b1ff } .l1 { --one: #f0a060 } .paper { --one: #5fd0cb }
}
.original, .ours, .l1, .paper { fill: var(--one) } path { fill: none !important; stroke: var(--one) }"""
SHAPES: dict[str, str] = {  # around the origin: told apart without colours, too
    "original": '<circle r="6"/>',
    "ours": '<rect x="-5.5" y="-5.5" width="11" height="11" transform="rotate(45)"/>',
    "l1": '<path d="M-5-5 5 5M-5 5 5-5" stroke-width="3"/>',
    "paper": '<rect x="-5" y="-5" width="10" height="10"/>',
}


@dataclass(frozen=True)
class Series:
    """Points (cost, error) of one method in a panel, its name, and whether a line joins them."""

    kind: str
    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = False
    beside: int = 0  # the point that the name stands beside
    move: tuple[int, int] = (12, 5)  # of the name, in pixels


def plot_text() -> str:
    """The whole picture."""
    lines = [line for line in measured() if (line.network, line.data) == (NETWORK, DATA)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="title">',
        f'<title id="title">Test error of {NETWORK} on {DATA} against latency and against FLOPs: the '
        "original, our networks, those of l1-norm and the paper's</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        *_panel(
            TOPS[0], f"{NETWORK}: test error after one epoch, against latency", (0.4, 1.0),
            latency_series(lines), (0.4, 0.6, 0.8, 1.0), lambda value: f"{value:.1f}x",
        ),
        _text(LEFT, TOPS[0] + PANEL + 44, "time of one input in onnxruntime, as a share of the original's"),
        *_panel(
            TOPS[1], "Test error against FLOPs; the paper gives no latency", (15, 100),
            flops_series(lines), (20, 40, 60, 80, 100), lambda value: f"{value:.0f} %",
        ),
        _text(LEFT, TOPS[1] + PANEL + 44, "FLOPs that are left"),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def latency_series(lines: Sequence[Measured]) -> list[Series]:
    """What was measured in onnxruntime, after one epoch of training each."""
    timed = [line for line in lines if line.latency.endswith("onnxruntime")]
    epochs = {line.training for line in timed}
    assert epochs == {"1 epoch"}, epochs
    ours = [line for line in timed if line.method.startswith(OURS)]
    l1 = [line for line in timed if line.method.startswith("l1-norm")]
    return [
        _original(timed[0], 1.0),
        Series("ours", "ours", sorted((ratio(line), _error(line)) for line in ours), beside=-1),
        Series("l1", "l1-norm", sorted((ratio(line), _error(line)) for line in l1), beside=-1),
    ]


def flops_series(lines: Sequence[Measured]) -> list[Series]:
    """What was trained longest: ours, and the paper's networks; l1-norm after its epoch."""
    recorded = [line for line in lines if line.method == OURS]
    paper = [line for line in lines if line.method == PAPER]
    l1 = [line for line in lines if line.method.startswith("l1-norm")]
    return [
        _original(recorded[0], 100.0),
        Series("ours", f"ours, {_epochs(recorded)}", _by_flops(recorded), True, beside=1, move=(-20, 24)),
        Series("paper", f"the paper, {_epochs(paper)}", _by_flops(paper), True, beside=2, move=(-110, -14)),
        Series("l1", f"l1-norm, {_epochs(l1)}", _by_flops(l1), beside=-1),
    ]  # fmt: skip


def _original(line: Measured, cost: float) -> Series:
    return Series("original", "original", [(cost, float(line.original))], move=(-64, -10))


def _by_flops(lines: Sequence[Measured]) -> list[tuple[float, float]]:
    return sorted((line.left, _error(line)) for line in lines)


def _error(line: Measured) -> float:
    return float((line.trained if line.trained != "-" else line.untrained).split()[0])


def _epochs(lines: Sequence[Measured]) -> str:
    """How long these networks were trained.

    >>> _epochs([Measured("a", "b", "c", 1.0, "6", training=epochs) for epochs in ("6 epochs", "-")])
    '0 to 6 epochs'
    """
    counts = sorted(0 if line.training == "-" else int(line.training.split()[0]) for line in lines)
    few, many = counts[0], counts[-1]
    unit = "epoch" if many == 1 else "epochs"
    return f"{many} {unit}" if few == many else f"{few} to {many} {unit}"


def _panel(
    top: int,
    title: str,
    costs: tuple[float, float],
    series: Sequence[Series],
    ticks: Sequence[float],
    write: Callable[[float], str],
) -> list[str]:
    """One pair of axes with its points, each with its exact figures as a title."""

    def place(cost: float, error: float) -> tuple[float, float]:
        across = (cost - costs[0]) / (costs[1] - costs[0])
        down = (ERRORS[1] - error) / (ERRORS[1] - ERRORS[0])
        return round(LEFT + across * (WIDTH - LEFT - RIGHT), 1), round(top + down * PANEL, 1)

    parts = [_text(LEFT, top - 18, title, kind="name")]
    for error in range(ERRORS[0], ERRORS[1] + 1, 2):
        y = place(costs[0], error)[1]
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(LEFT - 10, y + 5, f"{error} %", anchor="end"))
    for tick in ticks:
        parts.append(_text(place(tick, ERRORS[0])[0], top + PANEL + 21, write(tick), anchor="middle"))
    for one in series:
        spots = [place(*point) for point in one.points]
        if one.joined:
            way = " ".join(f"{x},{y}" for x, y in spots)
            parts.append(f'<path class="{one.kind}" d="M{way}" stroke-width="2"/>')
        for (x, y), (cost, error) in zip(spots, one.points, strict=True):
            told = f"<title>{one.name}: {error:g} % at {write(cost)}</title>"
            parts.append(f'<g class="{one.kind}" transform="translate({x} {y})">{told}{SHAPES[one.kind]}</g>')
        x, y = spots[one.beside]
        parts.append(_text(x + one.move[0], y + one.move[1], one.name, kind=f"name {one.kind}"))
    return parts


def _text(x: float, y: float, text: str, *, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named} text-anchor="{anchor}">{text}</text>'
