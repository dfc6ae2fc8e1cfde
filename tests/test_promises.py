"""What docs/promises.md promises: names, flags and formats stay, and newer formats are refused politely.

`python tests/test_promises.py` adds what is new to fixtures/public.json; nothing is ever taken out of it.
"""

import inspect
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

import deeppruning as dp
from deeppruning.cli.completion import TABLE
from deeppruning.errors import DeepPruningError, RunError, WeightsError
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.jobs import solution
from deeppruning.runs import RunFolder, database
from deeppruning.training import checkpoint
from deeppruning.training.tensors import read_tensors, write_tensors

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
PUBLIC = ROOT / "tests" / "fixtures" / "public.json"
RUN = ROOT / "tests" / "fixtures" / "run"
CHECKPOINT = ROOT / "tests" / "fixtures" / "checkpoint.safetensors"


def public_now() -> dict[str, dict[str, list[str]]]:
    """Names at the root with their parameters, and commands with their flags."""
    names = {name: getattr(dp, name) for name in dp.__all__ if name != "__version__"}
    commands = json.loads(TABLE.read_text())["commands"]
    return {
        "names": {name: list(inspect.signature(each).parameters) for name, each in names.items()},
        "flags": {
            name: [
                flag for row in rows for each in (row["flags"] or [row["name"]]) for flag in each.split("/")
            ]
            for name, rows in commands.items()
        },
    }


def test_no_public_name_parameter_or_flag_is_gone() -> None:
    kept, now = json.loads(PUBLIC.read_text()), public_now()
    for kind, entries in kept.items():
        gone = {name: sorted(set(words) - set(now[kind].get(name, []))) for name, words in entries.items()}
        assert {name: words for name, words in gone.items() if words} == {}
        assert entries.keys() <= now[kind].keys()


def test_what_is_new_is_kept_from_now_on() -> None:
    kept, now = json.loads(PUBLIC.read_text()), public_now()
    new = {
        f"{kind} {name}: {word}"
        for kind, entries in now.items()
        for name, words in entries.items()
        for word in {*words} - {*kept[kind].get(name, [])}
    }
    assert new == set(), "run `python tests/test_promises.py`"


def test_the_versions_on_the_page_are_those_of_the_code() -> None:
    section = PAGE.split("## Formats")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", section, re.MULTILINE)[1:]) == {
        "options of a run": str(database.FORMAT),
        "history of a run": str(database.FORMAT),
        "saved network and its cut": f"`{solution.FORMAT}`",
        "checkpoint of a training": checkpoint.FORMAT,
    }


def test_every_key_of_a_saved_network_is_listed() -> None:
    listed = {*re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.+?) \|", PAGE, re.MULTILINE)))}
    with safe_open(RUN / "knee.safetensors", framework="pt") as file:
        assert file.metadata().keys() <= listed


def test_the_stored_checkpoint_is_read() -> None:
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()  # so that there is a momentum to restore
    job = {"epochs": 2, "lr": 0.1}
    (epoch,) = checkpoint.load_checkpoint(CHECKPOINT, network, optimizer, job)
    assert (epoch.epoch, epoch.train_loss, epoch.test_error) == (1, 0.5, 0.2)
    assert torch.allclose(network.weight, torch.tensor([[-0.1053, 0.2793]]), atol=1e-3)
    assert torch.equal(optimizer.state[network.bias]["momentum_buffer"], torch.ones(1))


def of_another_format(file: Path, place: Path, format_: str) -> Path:
    """A copy of a safetensors file that says it has this format."""
    tensors, metadata = read_tensors(file)
    write_tensors(place, tensors, {**metadata, "format": format_})
    return place


@pytest.mark.parametrize("version", [3, 5])
def test_a_run_of_another_format_is_refused_and_left_as_it_is(tmp_path: Path, version: int) -> None:
    run = Path(shutil.copytree(RUN, tmp_path / "run"))
    text = (run / "config.toml").read_text().replace("format = 4", f"format = {version}")
    (run / "config.toml").write_text(text)
    expected = f"config.toml has format {version}, but this version reads format 4: open it with the version"
    with pytest.raises(RunError, match=expected):
        RunFolder.open(run)
    assert (run / "config.toml").read_text() == text


def test_a_network_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    newer = of_another_format(
        RUN / "knee.safetensors", tmp_path / "knee.safetensors", "deeppruning-solution/2"
    )
    with pytest.raises(WeightsError, match="solution/2', but this version reads 'deeppruning-solution/1'"):
        dp.load(newer)
    foreign = of_another_format(RUN / "knee.safetensors", tmp_path / "other.safetensors", "pt")
    with pytest.raises(WeightsError, match="has format 'pt': it is not a solution saved by a run"):
        dp.load(foreign)


def test_a_cut_with_something_unknown_in_it_is_refused() -> None:
    recipe = Recipe(kept=((0, 2),), widths=(3,), parameters={"conv.weight": ((0, 0),)})
    table = json.loads(recipe.to_json())
    assert Recipe.from_json(json.dumps(table)) == recipe
    with pytest.raises(
        WeightsError, match="it has 'twisted', which this version of deeppruning does not know"
    ):
        Recipe.from_json(json.dumps({**table, "twisted": []}))


def test_a_checkpoint_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    newer = str(int(checkpoint.FORMAT) + 1)
    said = f"is of format {newer}, this version reads {checkpoint.FORMAT}; delete it"
    with pytest.raises(DeepPruningError, match=said):
        checkpoint.read_history(of_another_format(CHECKPOINT, tmp_path / "checkpoint.safetensors", newer))


def test_commands_that_print_json_are_the_ones_listed() -> None:
    commands = json.loads(TABLE.read_text())["commands"]
    speaking = {name for name, rows in commands.items() if any("--json" in row["flags"] for row in rows)}
    row = next(line for line in PAGE.splitlines() if line.startswith("| `--json` |"))
    assert speaking == {*re.findall(r"`(\w+)`", row)} - {"event"}


if __name__ == "__main__":
    known = json.loads(PUBLIC.read_text()) if PUBLIC.exists() else {}
    merged = {
        kind: {
            name: sorted({*words, *known.get(kind, {}).get(name, [])})
            for name, words in {**{name: [] for name in known.get(kind, {})}, **entries}.items()
        }
        for kind, entries in public_now().items()
    }
    PUBLIC.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
