"""The guides keep up with the program: every option is listed, every link leads somewhere."""

import importlib
import re
from pathlib import Path

import click
import pytest

from deeppruning.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", ["prune", "train", "export", "bench", "finetune", "resume", "compare"])
def test_every_option_is_listed(name: str) -> None:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    text = (ROOT / "docs" / "options.md").read_text()
    # `compare` takes the options of `prune`, which are not said twice.
    listed = [text.split(f"## deeppruning {each}\n")[1].split("\n## ")[0] for each in (name, "prune")]
    section = "".join(listed if name == "compare" else listed[:1])
    flags = {flag for option in command.params if isinstance(option, click.Option) for flag in option.opts}
    assert {flag for flag in flags if f"`{flag}`" not in section} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    assert "Example" in (command.help or "")
    assert f"deeppruning {name}" in (command.help or "")
