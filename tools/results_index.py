"""Writes docs/results/index.md, tables of all pruned networks that were measured, and the README's part.

python tools/results_index.py

The README shows five lines of these tables and a plot, docs/results/summary.svg; both are written here, too.
"""

from dataclasses import fields
from itertools import groupby

from readme_results import README, with_results
from results_lines import RESULTS, Measured, measured
from results_plot import PLOT, plot_text

PAGE = RESULTS / "index.md"
INTRODUCTION = """\
# All results

Every pruned network that was measured: a table for each network and data set, the largest pruned network
first. All was measured on two cores of a shared machine (AMD EPYC) without a GPU. A dash means that it was
not measured.

- *Original*, *untrained* and *trained* are test errors in %: of the original, of the pruned network before
  any training, and after the training that the next column names.
- *Latency* is the time of one input on one thread, in PyTorch unless said otherwise, as a ratio to the
  original's.
- *Time* is that of the search and of the training of this network, summed over workers.
- *How* leads to the command and its conditions.
- **Bold**: the lowest trained error of the methods that had the same FLOPs and the same training.
  Differences within the spread (± standard deviation over seeds) are noise.
- "The paper" is quoted from the paper: means of 10 runs, with originals of its own and FLOPs counted in
  its way.

What the names of the other methods mean is [listed here](../compare.md#the-methods). `tools/results_index.py`
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

TITLES = ("method", "FLOPs left", "original", "untrained", "trained", "after", "latency", "time", "how")


def page_text() -> str:
    """The whole page."""
    lines = measured()
    order = {line.network: place for place, line in reversed([*enumerate(lines)])}
    lines.sort(key=lambda line: (order[line.network], line.data, -line.left))
    parts = [INTRODUCTION]
    for (network, data), group in groupby(lines, key=lambda line: (line.network, line.data)):
        rows = [_text(line, best=line in _best(lines)) for line in group]
        head = [f"## {network}, {data}", "", f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}"]
        parts.append("\n".join([*head, *rows]) + "\n")
    return "\n".join(parts) + ENDING


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
    cells = [getattr(line, field.name) for field in fields(line)][2:]
    cells[1] = f"{line.left:.1f} %"
    if best:
        cells[0] = f"**{cells[0]}**"
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
    PLOT.write_text(plot_text(), encoding="utf-8")
    README.write_text(with_results(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE, PLOT, README, sep="\n")
