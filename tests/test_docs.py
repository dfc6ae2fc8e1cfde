"""The guides keep up with the program: every option is listed, every link leads somewhere."""

import importlib
import re
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

import deeppruning as dp
from code_map import with_map
from deeppruning.cli.main import COMMANDS
from deeppruning.system.commands import EXTRAS
from deeppruning.system.toml import read_toml
from search_helpers import tiny_net
from test_layers import LAYERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


LISTED = ("prune", "train", "export", "bench", "pick", "finetune", "resume", "compare")


@pytest.mark.parametrize("name", LISTED)
def test_every_option_is_listed(name: str) -> None:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    text = (ROOT / "docs" / "options.md").read_text()
    # `compare` takes the options of `prune`, which are not said twice.
    listed = [text.split(f"## deeppruning {each}\n")[1].split("\n## ")[0] for each in (name, "prune")]
    section = "".join(listed if name == "compare" else listed[:1])
    flags = {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}
    assert {flag for flag in flags if f"`{flag}`" not in section} == set()


def test_what_is_said_of_installing_is_true() -> None:
    project = read_toml(ROOT / "pyproject.toml")["project"]
    extras = {name: tuple(needed) for name, needed in project["optional-dependencies"].items()}
    ours = {"dev": (), "docs": (), "examples": (), "trackers": ()}  # for working on it, not for using it
    assert {**extras, **ours} == {**EXTRAS, **ours}
    # On Linux, pip's own PyTorch is the one for GPUs: the way to the small one is shown first.
    readme = (ROOT / "README.md").read_text()
    assert "pip install torch --index-url https://download.pytorch.org/whl/cpu && pip install ." in readme
    assert {extra for extra in EXTRAS if f"'.[{extra}]'" not in readme} == set()
    # The package is in no index: by its name alone, pip finds nothing.
    sources = [*PAGES, *(ROOT / "src").rglob("*.py"), ROOT / "examples" / "tutorial.ipynb"]
    assert [path.name for path in sources if re.search(r"pip install '?deeppruning", path.read_text())] == [
        "commands.py"  # says so
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    assert "Example" in (command.help or "")
    assert f"deeppruning {name}" in (command.help or "")


def files_named(text: str) -> list[str]:
    """The source files a text names as code; those of users (`costs.py:energy`) go with a function."""
    return re.findall(r"`([\w./-]+\.py)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    homes = (ROOT / "src" / "deeppruning", ROOT, page.parent)
    named = files_named(page.read_text())
    assert [name for name in named if not any((home / name).is_file() for home in homes)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_imports_that_are_shown_work(page: Path) -> None:
    shown = re.findall(r"^\s*from (deeppruning[\w.]*) import ([\w, ]+)", page.read_text(), re.MULTILINE)
    wanted = [(module, name.split(" as ")[0].strip()) for module, names in shown for name in names.split(",")]
    assert [each for each in wanted if not hasattr(importlib.import_module(each[0]), each[1])] == []


@pytest.mark.parametrize(("walk", "most"), [("### One genome", 30), ("### One convolution", 12)])
def test_the_walks_through_the_code_are_short(walk: str, most: int) -> None:
    named = files_named((ROOT / "CONTRIBUTING.md").read_text().split(walk)[1].split("\n#")[0])
    assert len(named) == len(set(named)) > most // 2
    assert len(named) <= most


def test_the_map_of_the_code_has_every_file_as_it_is() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert page == with_map(page), "run `python tools/code_map.py`"


def test_the_layers_are_drawn_as_they_are_tested() -> None:
    picture = (ROOT / "CONTRIBUTING.md").read_text().split("```\ncli\n")[1].split("```")[0]
    drawn = [line.split(" · ") for line in ["cli", *picture.strip().splitlines()]]
    place = {name: number for number, line in enumerate(reversed(drawn)) for name in line}
    layers = [layer - {"__main__"} for layer in LAYERS]
    assert set().union(*layers) <= place.keys()
    levels = [{place[name] for name in layer} for layer in layers if layer]
    assert all(len(level) == 1 for level in levels)
    heights = [max(level) for level in levels]
    assert heights == sorted(set(heights))


@pytest.mark.parametrize("network", ["tiny", pytest.param("as it is", marks=pytest.mark.slow)])
def test_the_python_of_the_readme_runs_as_it_stands(network, tmp_path, monkeypatch):
    """By a smaller search than the usual one, which takes minutes."""
    monkeypatch.chdir(tmp_path)
    quick = {"search": dp.SearchConfig(offspring=2, generations=1, sample=60, low=0.15, bins=4), "workers": 1}
    monkeypatch.setattr(
        dp, "prune", partial(dp.prune, **quick, finetune=dp.FinetuneConfig(epochs=0), report=False)
    )
    monkeypatch.setattr(dp, "search", partial(dp.search, **quick))
    brief = dp.TrainConfig(epochs=1)
    monkeypatch.setattr(dp, "TrainConfig", lambda **_: brief)
    monkeypatch.setattr(dp, "bench", partial(dp.bench, rounds=1, batches=(1,)))
    if network == "tiny":
        monkeypatch.setattr("deeppruning.models.create_model", lambda *_, **__: tiny_net())
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    names: dict[str, Any] = {}
    exec(compile(block[1], "README.md", "exec"), names)
    assert names["front"].at(flops=0.4).flops <= 0.4 * names["result"].original.flops
    assert (tmp_path / "runs/mine/export/knee.onnx").is_file()
