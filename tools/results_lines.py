"""Every pruned network that was measured, as lines: read from the records and the tables of the pages.

Nothing is typed here: figures come from experiments/records, from experiments/paper.toml and from the tables
of the pages that each line links to.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_tables import anchor, read_section

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
sys.path.insert(0, str(ROOT / "experiments"))

from deeppruning.amounts import duration  # noqa: E402
from deeppruning.roles import ROLES, TARGET  # noqa: E402
from deeppruning.system.toml import read_toml  # noqa: E402
from pick_lines import longest_training, who  # noqa: E402

NAMES = {"resnet": "ResNet", "densenet": "DenseNet", "vgg": "VGG"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
OURS, PAPER = "ours, guided", "the paper"
HEADING = "ResNet20 at 75, 38 and 21 % of the FLOPs"


@dataclass(frozen=True)
class Measured:
    """One line of the table; texts as they are shown, but for what lines are sorted by."""

    network: str
    data: str
    method: str
    left: float  # FLOPs, in per cent
    original: str
    untrained: str = "-"
    trained: str = "-"
    training: str = "-"
    latency: str = "-"
    time: str = "-"
    how: str = "-"


def from_records() -> Iterator[Measured]:
    """The picks of our searches, each after its longest training, and the paper's networks beside them."""
    searched = set()
    for path in sorted((ROOT / "experiments" / "records").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        for run in record["runs"]:
            if run["kind"] == "search":
                searched.add((run["options"]["model"]["spec"], run["options"]["data"]["data"]))
                yield from _picks(record["row"], run)
    for figures in read_toml(ROOT / "experiments" / "paper.toml")["network"]:
        if (figures["model"], figures["data"]) in searched:
            yield from _of_paper(figures)


def _picks(row: str, run: dict[str, Any]) -> Iterator[Measured]:
    original, shown = run["original"], set()
    for role in (*ROLES, TARGET):
        one = longest_training(run["networks"], role)
        if one is None or one["candidate"] in shown or one.get("failure"):
            continue
        shown.add(one["candidate"])
        before, epochs = one["untrained_error"], one["epochs"]
        if not epochs and before is None:
            before = one["test_error"]
        yield Measured(
            _name(run["options"]["model"]["spec"]),
            DATA[run["options"]["data"]["data"]],
            who(run["options"]["search"]),
            one["flops_left"],
            _percent(original["test_error"]),
            "-" if before is None else _percent(before),
            _percent(one["test_error"]) if epochs else "-",
            f"{epochs} epoch{'s' * (epochs > 1)}" if epochs else "-",
            f"{one['latency_ms'] / original['latency_ms']:.2f}x" if one["latency_ms"] else "-",
            f"{duration(run['search_seconds'])} + {duration(one['seconds'])}",
            f"[{row}](paper.md#{anchor(row)})",
        )


def _of_paper(figures: dict[str, Any]) -> Iterator[Measured]:
    for role in ROLES:
        one = figures[role]
        yield Measured(
            figures["name"], DATA[figures["data"]], PAPER, 100 - one["cut"],
            f"{figures['original']['error']:.2f}", "-", f"{one['error']:.2f}",
            f"{figures['epochs']} epochs", how=f"Table {figures['table']}",
        )  # fmt: skip


def from_comparisons() -> Iterator[Measured]:
    """The methods of docs/results/rivals.md: cells like `9.5 → 10.5 ± 0.1` under a share of the FLOPs."""
    for place, rate in enumerate(("constant rate", "falling rate")):
        yield from _compared(
            HEADING, place, "ResNet20", "CIFAR-10", r"original has ([\d.]+) %", f"32 steps, {rate}"
        )
    heading = "A network that nothing was tuned for"
    yield from _compared(heading, 0, "MobileNet v2", "digits", r"test error is ([\d.]+) %", "2 epochs")
    section = read_section(RESULTS / "rivals.md", "A network of another family")
    left, original = section.find(r"pruned to (\d+) %"), section.find(r"\(([\d.]+) % error")
    for row in section.tables[0]:
        yield Measured(
            "DenseNet100", "CIFAR-10, 1,000 test images", _method(row["method"]), float(left), original,
            row["without training"], row["after 16 steps"], "16 steps",
            how=_link("rivals.md", section.heading),
        )  # fmt: skip


def _compared(
    heading: str, place: int, network: str, data: str, original: str, training: str
) -> Iterator[Measured]:
    section = read_section(RESULTS / "rivals.md", heading)
    images = section.find(r"([\d,]+) test images")
    for row in section.tables[place]:
        for title, cell in row.items():
            if not title.endswith(" %"):
                continue
            untrained, trained = cell.split(" → ")
            yield Measured(
                network, f"{data}, {images} test images", _method(row["method"]),
                float(title.removesuffix(" %")), section.find(original), untrained, trained, training,
                how=_link("rivals.md", heading),
            )  # fmt: skip


def from_longer_trainings() -> Iterator[Measured]:
    """Two epochs on all images, and the paper's search after 32 steps."""
    section = read_section(RESULTS / "rivals.md", "Two epochs on all images")
    original = read_section(RESULTS / "resnet20-cifar10.md", "The paper's search: ResNet20 on CIFAR-10")
    for row in section.tables[0]:
        rate = "constant rate" if row["fine-tuning"].startswith("constant") else "falling rate, distillation"
        yield Measured(
            "ResNet20", "CIFAR-10", _method(row["start"]), float(row["FLOPs"].removesuffix(" %")),
            original.find(r"\(([\d.]+) % test error\)"), row["before"], row["after 2"], f"2 epochs, {rate}",
            how=_link("rivals.md", section.heading),
        )  # fmt: skip
    section = read_section(RESULTS / "rivals.md", "The paper's search and the older rivals")
    images = section.find(r"([\d,]+) test images")
    (row,) = [row for row in section.tables[0] if row["method"].startswith("deeppruninges")]
    first = read_section(RESULTS / "rivals.md", HEADING).find(r"original has ([\d.]+) %")
    left = re.findall(r"[\d.]+", section.find(r"run with the paper's values\]\([^)]+\): ([\d., and]+) %"))
    for share, role in zip(left, ROLES, strict=True):
        untrained, trained = row[role].split(" → ")
        yield Measured(
            "ResNet20", f"CIFAR-10, {images} test images", "the paper's search", float(share), first,
            untrained, trained, "32 steps, constant rate", time=row["choosing"],
            how=_link("rivals.md", section.heading),
        )  # fmt: skip


def from_latencies() -> Iterator[Measured]:
    """ResNet56 by latency, by FLOPs and by l1-norm, in onnxruntime, with and without our refit."""
    heading = "By latency, by FLOPs, by l1-norm"
    first, *rest = read_section(RESULTS / "latency.md", heading).tables[0]
    for row in rest:
        l1 = row["network"].startswith("l1")
        yield Measured(
            "ResNet56", "CIFAR-10", row["network"] if l1 else f"{OURS}: {row['network']}",
            float(row["FLOPs"].removesuffix(" %")), first["refitted"], row["as cut" if l1 else "refitted"],
            row["one epoch"], "1 epoch", f"{row['onnxruntime 1']} in onnxruntime",
            how=_link("latency.md", heading),
        )  # fmt: skip


def from_photographs() -> Iterator[Measured]:
    """Networks of ImageNet, top-1 turned into errors."""
    heading = "Top-1 without any training"
    for row in read_section(RESULTS / "imagenet.md", heading).tables[0]:
        top1 = float(row["top-1"].removesuffix(" %"))
        change = float(row["difference from the original"].split()[0])
        yield Measured(
            row["network"], f"ImageNet, {row['photographs of val']} photographs", row["method"],
            float(row["FLOPs left"].removesuffix(" %")), f"{100 - top1 + change:.2f}", f"{100 - top1:.2f}",
            how=_link("imagenet.md", heading),
        )  # fmt: skip


def measured() -> list[Measured]:
    """All lines, in the order of their sources."""
    sources = (
        from_records(),
        from_comparisons(),
        from_longer_trainings(),
        from_latencies(),
        from_photographs(),
    )
    return [line for source in sources for line in source]


def _method(name: str) -> str:
    return OURS if name == "guided" else name


def _name(model: str) -> str:
    return re.sub(r"^[a-z]+", lambda match: NAMES.get(match[0], match[0]), model)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _link(page: str, heading: str) -> str:
    return f"[{page.removesuffix('.md')}]({page}#{anchor(heading)})"
