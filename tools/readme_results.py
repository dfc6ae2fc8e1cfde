"""The README's part of the results: five lines of the table of docs/results/index.md."""

import re
from collections.abc import Sequence

from results_lines import OURS, PAPER, ROOT, Measured, measured

README = ROOT / "README.md"
FIRST, LAST = "<!-- written by tools/results_index.py -->", "<!-- end of what it writes -->"
TITLES = ("network", "FLOPs left", "latency", "original", "without training", "trained", "the paper")


def with_results(readme: str) -> str:
    """The README with its results as the records have them now."""
    before, _, rest = readme.partition(FIRST)
    _, last, after = rest.partition(LAST)
    if not last:
        raise ValueError(f"the README has no place for results, between {FIRST} and {LAST}")
    return f"{before}{FIRST}\n{table_text()}\n{LAST}{after}"


def table_text() -> str:
    """The five lines as a table."""
    lines = measured()
    half, l1 = at_half_the_latency(lines)
    (photographs,) = [
        line
        for line in lines
        if line.network == "ResNet50" and line.left < 60 and line.method.startswith(OURS)
    ]
    rows = [
        *(_row(line, _name(line), _of_paper(line, lines)) for line in beside_the_paper(lines)),
        _row(half, f"{_name(half)}: half the latency"),
        _row(l1, f"{_name(l1)}: the same latency by l1-norm"),
        _row(photographs, _name(photographs)),
    ]
    table = [f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}", *rows]
    return "\n".join(table)


def beside_the_paper(lines: Sequence[Measured]) -> list[Measured]:
    """ResNet56 and DenseNet100 on CIFAR-10, trained, with the FLOPs of the paper's knee."""
    return [
        next(line for line in lines if line.network == name and _searched(line) and _paper_at(line, lines))
        for name in ("ResNet56", "DenseNet100")
    ]


def at_half_the_latency(lines: Sequence[Measured]) -> tuple[Measured, Measured]:
    """Our network, and the one that l1-norm gives within the latency measured for ours."""
    (ours,) = [line for line in lines if line.method == f"{OURS}: best within half the latency"]
    rivals = [line for line in lines if line.how == ours.how and line.method.startswith("l1-norm")]
    return ours, min(rivals, key=lambda line: abs(ratio(line) - ratio(ours)))


def ratio(line: Measured) -> float:
    """The latency as a share of the original's.

    >>> ratio(Measured("ResNet56", "CIFAR-10", "ours", 51.0, "6.6", latency="0.51x in onnxruntime"))
    0.51
    """
    return float(line.latency.split("x")[0])


def _searched(line: Measured) -> bool:
    return line.method == OURS and line.data == "CIFAR-10" and line.trained != "-"


def _paper_at(line: Measured, lines: Sequence[Measured]) -> Measured | None:
    """The paper's network of about the same FLOPs: its knee, which lies between 35 and 45 %."""
    same = [one for one in lines if (one.network, one.data, one.method) == (line.network, line.data, PAPER)]
    near = [one for one in same if abs(one.left - line.left) < 1 and 35 < one.left < 45]
    return near[0] if near else None


def _of_paper(line: Measured, lines: Sequence[Measured]) -> str:
    paper = _paper_at(line, lines)
    assert paper is not None
    return f"{paper.trained} % ({paper.training})"


def _name(line: Measured) -> str:
    """The network, linked to the page with its command, and the data."""
    page = re.sub(r"^\[[^\]]*\]\(", "docs/results/", line.how).removesuffix(")")
    return f"[{line.network}]({page}), {line.data}"


def _row(line: Measured, name: str, paper: str = "") -> str:
    latency = "not measured" if line.latency == "-" else line.latency
    latency = f"{latency} in PyTorch" if latency.endswith("x") else latency
    trained = "no training" if line.trained == "-" else f"{line.trained} % ({line.training})"
    cells = (name, f"{line.left:.1f} %", latency, f"{line.original} %", f"{line.untrained} %", trained, paper)
    return f"| {' | '.join(cells)} |"
