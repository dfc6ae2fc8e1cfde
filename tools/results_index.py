"""Writes docs/results/index.md, one table of all pruned networks that were measured, and the README's part.

python tools/results_index.py

The README shows five lines of that table and a plot, docs/results/summary.svg; both are written here, too.
"""

from dataclasses import fields

from readme_results import README, with_results
from results_lines import RESULTS, Measured, measured
from results_plot import PLOT, plot_text

PAGE = RESULTS / "index.md"
INTRODUCTION = """\
# Results in one table

Every pruned network that was measured, by network and size. Errors are test errors in %: of the original,
of the pruned network before any training, and after the training that the next column names. *Latency* is
the time of one input on one thread, in PyTorch unless said otherwise, as a ratio to the original's. *Time*
is that of the search and of the training of this network, summed over workers. The last column leads to the
command and its conditions; all was measured on two cores of a shared machine (AMD EPYC) without a GPU. A
dash means that it was not measured.

Of methods that had the same FLOPs and the same training, the one with the lowest trained error is in bold;
differences within the spread (± standard deviation over seeds) are noise. "The paper" is quoted from the
paper: means of 10 runs, with originals of its own and FLOPs counted in its way. `tools/results_index.py`
writes this page from the records and from the tables of the linked pages.

"""
ENDING = """\

## Pages

- [The rivals on the same terms](rivals.md): the same FLOPs and the same training for every method.
- [The paper's tables, row by row](paper.md), and [the paper's search](resnet20-cifar10.md) in full.
- [How near targets are met](targets.md), and [latency, planned and measured](latency.md).
- [Photographs of 224 pixels](imagenet.md).
- [Which networks can be pruned](../coverage.md), and [ONNX files](../onnx.md#measured).
- [Other tasks](../training-loops.md): segmentation, detection, audio, Lightning, transformers.
"""

TITLES = (
    "network", "data", "method", "FLOPs left", "original", "untrained", "trained", "after", "latency", "time",
    "how",
)  # fmt: skip


def page_text() -> str:
    """The whole page."""
    lines = measured()
    order = {line.network: place for place, line in reversed([*enumerate(lines)])}
    lines.sort(key=lambda line: (order[line.network], line.data, -line.left))
    table = [f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}"]
    table += [_text(line, best=line in _best(lines)) for line in lines]
    return INTRODUCTION + "\n".join(table) + "\n" + ENDING


def _best(lines: list[Measured]) -> list[Measured]:
    """Of lines of one comparison and about the same FLOPs, the one with the lowest error."""
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for line in lines:
        same = (line.network, line.data, line.how, line.training, round(line.left / 2))
        groups.setdefault(same, []).append(line)
    return [min(group, key=_error) for group in groups.values() if len({line.method for line in group}) > 1]


def _error(line: Measured) -> float:
    return float((line.trained if line.trained != "-" else line.untrained).split()[0])


def _text(line: Measured, *, best: bool) -> str:
    cells = [getattr(line, field.name) for field in fields(line)]
    cells[3] = f"{line.left:.1f} %"
    if best:
        cells[2] = f"**{cells[2]}**"
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
    PLOT.write_text(plot_text(), encoding="utf-8")
    README.write_text(with_results(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE, PLOT, README, sep="\n")
