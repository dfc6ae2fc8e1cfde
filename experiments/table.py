"""The page of results, docs/results/paper.md, from the paper's figures and the records of our runs.

Example: python experiments/table.py

What is written by hand between the two marks of the page stays as it is.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collect import FORMAT, RECORDS
from deeppruning.errors import DeepPruningError, InputError
from deeppruning.reporting.plots import population, svg
from deeppruning.roles import ROLES, TARGET
from deeppruning.system.toml import read_toml
from pick_lines import GUIDED, Group, PickLine, our_lines, paper_lines, who
from row_options import HERE, RowOptions, row_files
from trained_lines import TrainedLine, knee_lines, trained_lines

PAGE = HERE.parent / "docs" / "results" / "paper.md"
START, END = "<!-- reading -->", "<!-- /reading -->"
NOTHING_READ = "Nothing is read out of it yet."
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
INTRODUCTION = """\
# The paper's tables, row by row

The figures of the paper ({authors},
*{title}*; means of {runs} runs, quoted from
[paper.toml](../../experiments/paper.toml)) beside runs of our own on the real data sets. How a row is run,
what it costs and where weights come from: [experiments](../../experiments/README.md). This page is written by
[table.py](../../experiments/table.py) from the records that the lines link to.
"""
LEGEND = """\
Test error: after the last epoch, on all test images, of the longest training that a network got; "untrained"
is the same network refitted, before any epoch. Cut: share of the original's that is gone. Latency: one input
on one thread of the machine that made the run. Time: candidates of the search + epochs of this network, added
up over workers; not what a search does before its first candidate (the scan of the layers: half a minute for
ResNet20, minutes for ResNet56 and VGG16, a quarter of an hour for DenseNet100). "target": the best network
within the FLOPs that the row asks for. In brackets: its number.
"""
SCRATCH = """\
The paper's networks made for phones, whatever else we trained, and beside them the knees of our searches on
the same data. Where training began on smaller images, that is said; error and FLOPs are those on the largest.
Epochs of a knee are those of its fine-tuning.
"""
OTHERS = """\
Not run here: no trained weights of theirs were at hand, and to train them takes many hours on a processor.
"""
PICTURES = """\
How each was made, and every candidate that its search tried: FLOPs, and error on the sample it was judged on.
The guided search selects on a smoother figure than the error, [which compares outputs with the
original's](../how-it-works.md), so a point may lie below its line and beside its picks.
"""


def read_records(folder: Path = RECORDS) -> list[dict[str, Any]]:
    """All records, by the names of their rows."""
    records = []
    for path in sorted(folder.glob("*.json")):
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if record.get("format") != FORMAT:
            raise InputError(f"{path} is no record of format {FORMAT}; write it again with collect.py")
        records.append(record)
    return records


def read_paper(path: Path = HERE / "paper.toml") -> dict[str, Any]:
    """The paper's figures."""
    figures: dict[str, Any] = read_toml(path)
    return figures


def page_text(paper: Mapping[str, Any], records: Sequence[Mapping[str, Any]], reading: str) -> str:
    """The whole page."""
    groups = _groups(paper, records)
    parts = [
        INTRODUCTION.format(**paper),
        f"{START}\n{reading.strip()}\n{END}\n",
        f"## The networks\n\n{LEGEND}\n{_network_table(paper, groups, ours=True)}",
        f"## Trained from scratch\n\n{SCRATCH}\n{_training_table(paper, groups, records)}",
        f"## Our runs\n\n{PICTURES}\n{_runs(records)}",
        f"## The paper's other networks\n\n{OTHERS}\n{_network_table(paper, groups, ours=False)}",
    ]
    return "\n".join(parts)


def kept_reading(page: Path) -> str:
    """What is written by hand on the page; a page that has lost its marks is not written over."""
    if not page.exists():
        return NOTHING_READ
    _, start, rest = page.read_text(encoding="utf-8").partition(START)
    reading, end, _ = rest.partition(END)
    if not start or not end:
        raise InputError(f"{page} has no {START} and {END}, between which text is kept; put them back")
    return reading.strip()


def write_page(records: Sequence[Mapping[str, Any]], page: Path = PAGE) -> list[Path]:
    """Write the page, and beside it the plot of each search; plots of records that are gone go as well."""
    text = page_text(read_paper(), records, kept_reading(page))
    page.write_text(text, encoding="utf-8")
    plots = {page.parent / name: run for name, run in _searches(records).items()}
    for stale in set(page.parent.glob("paper-*.svg")) - plots.keys():
        stale.unlink()
    for path, run in plots.items():
        figure = population(_plot_data(run))
        if figure is not None:
            path.write_text(svg(figure), encoding="utf-8")
    return [page, *plots]


def _groups(paper: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Group]:
    """Every network and data set of the paper and of ours: the paper's figures, our runs, rows that wait."""
    groups = {(one["model"], one["data"]): Group(one["name"], one) for one in paper["network"]}
    for record in records:
        for run in record["runs"]:
            if run["kind"] == "search":
                options = run["options"]
                key = (options["model"].get("spec", "own"), options["data"].get("data", "own"))
                groups.setdefault(key, Group(_title(key[0]))).ours.append((record["row"], run))
    for path in row_files():
        row = RowOptions.read("--config", path)
        group = groups.setdefault((row.model, row.data), Group(_title(row.model)))
        if path.stem not in {name for name, _ in group.ours}:
            group.waiting.append((who(row.search.to_table()), path.stem))
    return groups


def _network_table(paper: Mapping[str, Any], groups: Mapping[tuple[str, str], Group], *, ours: bool) -> str:
    """The lines of networks that we have rows of, or of the others; data set by data set."""
    scratch = {(one["model"], one["data"]): one for one in paper["scratch"]}
    lines = []
    kept = [key for key, group in groups.items() if group.is_ours == ours]
    for key in sorted(kept, key=lambda key: key[1]):  # keeps the paper's order within a data set
        shown = DATA.get(key[1], key[1])
        lines += [
            line.text(groups[key].name, shown)
            for line in (*paper_lines(groups[key], scratch.get(key)), *our_lines(groups[key]))
        ]
    return PickLine.heading() + "".join(lines)


def _title(model: str) -> str:
    """
    >>> _title("resnet20")
    'ResNet20'
    """
    for name in ("ResNet", "DenseNet", "VGG"):
        model = model.replace(name.lower(), name)
    return model


def _training_table(
    paper: Mapping[str, Any], groups: Mapping[tuple[str, str], Group], records: Sequence[Mapping[str, Any]]
) -> str:
    """Networks trained from scratch, then the knees of guided searches on the data that ours learnt from."""
    ours = [(record["row"], run) for record in records for run in record["runs"] if run["kind"] == "training"]
    lines = [(_title(name), data, line) for name, data, line in trained_lines(paper["mobile"], ours)]
    learnt = {run["data"] for _, run in ours}
    for (_, data), group in groups.items():
        for row, run in group.ours:
            if data in learnt and who(run["options"]["search"]) == GUIDED:
                lines += [(group.name, data, line) for line in knee_lines(row, run)]
    return TrainedLine.heading() + "".join(
        line.text(name, DATA.get(data, data)) for name, data, line in lines
    )


def _searches(records: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The searches by the names of their plots."""
    return {
        f"paper-{record['row']}{f'-{number}' if number > 1 else ''}.svg": run
        for record in records
        for number, run in enumerate(record["runs"], start=1)
        if run["kind"] == "search"
    }


def _plot_data(run: Mapping[str, Any]) -> dict[str, Any]:
    """A search in the form in which the report's plots take it."""
    rows = [dict(zip(run["columns"], row, strict=True)) for row in run["candidates"]]
    picks = {
        role: one["candidate"] for one in run["networks"] for role in one["roles"] if role in (*ROLES, TARGET)
    }
    return {
        "candidates": rows,
        "axes": [{"key": "flops", "label": "FLOPs"}],
        "error_is_share": all(0 <= row["error"] <= 1 for row in rows if row["error"] is not None),
        "archive": {"fronts": [{"ids": run["front"]}]} if run["front"] else None,
        "picks": [picks],
        "solutions": [],
    }


def _runs(records: Sequence[Mapping[str, Any]]) -> str:
    """The commands and the plots of every row."""
    plots = {id(run): name for name, run in _searches(records).items()}
    shown = []
    for record in records:
        lines, pictures = [], []
        # What was trained before it was searched comes first.
        for run in sorted(record["runs"], key=lambda run: run["kind"] != "training"):
            lines += _commands(run)
            if id(run) in plots:
                what = f"{record['row']}, seed {run['seed']}: error in the search against FLOPs"
                pictures.append(f"\n![{what}]({plots[id(run)]})\n")
        shown.append(f"### {record['row']}\n\n```\n" + "\n".join(lines) + "\n```\n" + "".join(pictures))
    return "\n".join(shown) or "None has been run yet.\n"


def _commands(run: Mapping[str, Any]) -> list[str]:
    """What made a run: its stages, or its search and then the trainings of its networks."""
    if run["kind"] == "training":
        return [stage["command"] for stage in run["stages"]]
    return [run["command"], *(one["command"] for one in run["networks"] if "command" in one)]


def main() -> None:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--records", type=Path, default=RECORDS, help="the folder of records")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write")
    arguments = parser.parse_args()
    try:
        for path in write_page(read_records(arguments.records), arguments.page):
            print(path)
    except DeepPruningError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
