"""The rows of the paper's tables: each file holds options that `prune` has, of the values it is about."""

from pathlib import Path

import pytest

from deeppruning.errors import InputError
from deeppruning.targets.aiming import with_focus
from row_options import RowOptions, row_file, row_files
from table import read_paper

ROWS = {path.stem: path for path in row_files()}
WHAT = {
    "resnet56-cifar10": ("resnet56", "cifar10", "guided", 43, 0, 0.408),
    "densenet100-cifar10": ("densenet100", "cifar10", "guided", 39, 0, 0.396),
    "densenet100-cifar100": ("densenet100", "cifar100", "guided", 39, 0, 0.213),
    "resnet20-cifar10": ("resnet20", "cifar10", "guided", 143, 0, None),
    "vgg16-cifar10": ("vgg16", "cifar10", "guided", 55, 0, 0.384),
    "resnet20-paper-plus": ("resnet20", "cifar10", "paper", 63, 0, None),
    "resnet20-paper-comma": ("resnet20", "cifar10", "paper", 63, 0, None),
}


def test_the_rows_are_these() -> None:
    assert ROWS.keys() == WHAT.keys()


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_asks_prune_for_what_it_is_about(name: str) -> None:
    row = RowOptions.read("--config", row_file(name))
    search, finetune = row.search, row.finetune
    found = (row.model, row.data, search.strategy, search.evaluations, finetune.epochs, row.target.flops)
    assert found == WHAT[name]
    assert search.idle() == []  # an option that nothing looks at would mislead a reader
    assert search.selection == ("comma" if name.endswith("comma") else "plus")


@pytest.mark.parametrize("name", sorted(name for name in WHAT if WHAT[name][-1] is not None))
def test_a_row_comes_down_to_what_the_picks_of_the_paper_cost(name: str) -> None:
    row = RowOptions.read("--config", row_file(name))
    by_key = {(one["model"], one["data"]): one for one in read_paper()["network"]}
    paper = by_key[row.model, row.data]
    left = {role: 1 - paper[role]["cut"] / 100 for role in ("heavy", "knee", "light")}
    assert row.target.flops is not None and row.target.flops <= left["knee"]
    aimed = with_focus(row.search, row.target.flops)
    first_bin_ends = aimed.low * (aimed.high / aimed.low) ** (1 / aimed.bins)
    assert (aimed.high <= left["heavy"], first_bin_ends <= left["light"]) == (True, True)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_says_what_the_paper_has_and_how_it_is_run(name: str) -> None:
    text = ROWS[name].read_text()
    assert text.startswith("# ")
    assert f"deeppruning prune --config experiments/{name}.toml --weights " in text
    assert f"--out runs/{name}\n" in text
    assert all(word in text for word in ("# The paper", "# Before: ", "# Costs"))


def test_an_option_that_prune_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "row.toml").write_text('model = "resnet20"\n[search]\nofspring = 3\n')
    with pytest.raises(InputError, match="offspring"):
        RowOptions.read("--config", tmp_path / "row.toml")
