"""Every number of the README comes from a record, a page with its command, or a file of the project."""

import re
from collections.abc import Sequence

import pytest

from readme_results import FIRST, LAST, README, with_results
from results_lines import ROOT, measured
from results_plot import PLOT, flops_series, latency_series, plot_text

TEXT = README.read_text()
WORDS = {"three": "3", "four": "4"}
NUMBER = re.compile(r"(?<![\w.,-])\d(?:[\d.,]*\d)?(?![\w.]*[A-Za-z_])")

# A piece of the README and where its numbers come from: a file, and a pattern with a group for each of them.
COVERAGE, SUM = "docs/coverage.md", r"Of (\d+) networks DeepPruningES builds "
CLAIMS: Sequence[tuple[str, str, str]] = [
    ("Python 3.10 or newer", "pyproject.toml", r'requires-python = ">=([\d.]+)"'),
    ("within 40 % of the FLOPs", "README.md", r"front\.best\(flops=0\.(4)\)"),
    ("about 200 MB", "docs/installing.md", r"for CPUs takes about (\d+) MB to download"),
    ("Torch-Pruning 1.6.1", COVERAGE, r"Made on .*torch-pruning ([\d.]+\d),"),
    ("both tools on 64 networks", COVERAGE, SUM),
    ("reads all 64", COVERAGE, SUM + r"\1"),
    ("finds something to prune in 61", COVERAGE, r"finds something to cut in (\d+)"),
    ("cuts 45 correctly", COVERAGE, r"Torch-Pruning cuts (\d+) correctly"),
    ("four of its runs", COVERAGE, r"; (\d+) ran into the time limit"),
    ("(CC BY 4.0)", "src/deeppruning/data/sets/digits.py", r"licensed under CC BY ([\d.]+\d)"),
]
# Networks of the table by where they come from.
COUNTED = {"24 from torchvision": "torchvision", "37 from timm": "timm", "three from the zoo": "zoo"}
NAMES = ("kill -9",)


def prose(text: str) -> str:
    """What is claimed: no written table, no code but for its comments, no options and no addresses."""
    text = re.sub(f"{FIRST}.*?{LAST}", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", lambda block: " ".join(comments(block[0])), text, flags=re.DOTALL | re.M)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\b\w+=\S+", " ", text)
    return " ".join(text.split())


def comments(block: str) -> list[str]:
    """The comments of the lines of a block of code."""
    return re.findall(r"(?:^|\s)# (.*)$", block, re.MULTILINE)


def without_source(text: str) -> list[str]:
    """Numbers of a text that no claim covers."""
    left = prose(text)
    for piece in (*(claim[0] for claim in CLAIMS), *COUNTED, *NAMES):
        left = left.replace(piece, " ")
    return NUMBER.findall(left)


def numbers(piece: str) -> list[str]:
    """The numbers of a piece, also those that are written as words."""
    found = re.findall(r"\d[\d.]*\d|\d|\b(?:three|four)\b", piece)
    return [WORDS.get(number, number) for number in found]


def test_every_number_has_a_source() -> None:
    assert without_source(TEXT) == []


@pytest.mark.parametrize(
    ("added", "found"),
    [
        ("It is 3.7 times faster.", ["3.7"]),
        ("It takes 1,024 images and 5 %.", ["1,024", "5"]),
        ("```\ndeeppruning demo  # takes 4 minutes\n```", ["4"]),
        ("ResNet56 on CIFAR-10, `--target flops=40%`, [page](a-2.md).", []),
        ("```\ndeeppruning prune --sample 500\n```", []),
    ],
)
def test_a_number_without_a_source_is_noticed(added: str, found: list[str]) -> None:
    assert without_source(f"{TEXT}\n{added}\n") == found


@pytest.mark.parametrize(("piece", "file", "pattern"), CLAIMS, ids=[claim[0] for claim in CLAIMS])
def test_the_source_says_the_same(piece: str, file: str, pattern: str) -> None:
    assert piece in prose(TEXT)
    found = re.search(pattern, (ROOT / file).read_text())
    assert found is not None
    if piece == "within 40 % of the FLOPs":  # the share of the call on the same line
        assert [str(10 * int(found[1]))] == numbers(piece)
    else:
        assert list(found.groups()) == numbers(piece)


@pytest.mark.parametrize(("piece", "source"), COUNTED.items())
def test_networks_are_counted_in_the_table(piece: str, source: str) -> None:
    assert piece in prose(TEXT)
    table = (ROOT / COVERAGE).read_text().split("Made on ")[1].split("\nOf ")[0]
    rows = re.findall(rf"^\| `{source}/[^`]+`", table, re.MULTILINE)
    assert [str(len(set(rows)))] == numbers(piece)


def test_the_table_is_written_from_the_records() -> None:
    assert with_results(TEXT) == TEXT, "run `python tools/results_index.py`"
    table = TEXT.split(FIRST)[1].split(LAST)[0].strip().splitlines()
    assert len(table) == 2 + 5
    knee = "40.8 % | 0.57x in PyTorch | 6.61 % | 11.75 % | 7.30 % (6 epochs) | 9.98 % (50 epochs) |"
    assert table[2].endswith(knee)


def test_the_plot_is_drawn_from_the_records() -> None:
    assert PLOT.read_text() == plot_text(), "run `python tools/results_index.py`"
    lines = [line for line in measured() if (line.network, line.data) == ("ResNet56", "CIFAR-10")]
    timed = {one.kind: list(one.points) for one in latency_series(lines)}
    assert timed["l1"] == [(0.5, 12.1), (0.54, 11.4)]
    assert timed["ours"] == [(0.48, 9.5), (0.51, 9.1), (0.52, 8.7)]
    costed = {one.kind: one for one in flops_series(lines)}
    assert [error for _, error in costed["paper"].points] == [13.36, 9.98, 8.77]
    assert costed["ours"].name == "ours, 0 to 6 epochs"
    assert costed["paper"].name == "the paper, 50 epochs"
