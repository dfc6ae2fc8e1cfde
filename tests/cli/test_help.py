"""Long helps come under headings, and the tab key completes names, without waiting for torch."""

import importlib
import re

import click
import pytest
from click.testing import CliRunner

from deeppruning.cli.main import cli
from deeppruning.cli.options.headings import ORDER, GroupedCommand, heading_of


def command_of(name: str) -> click.Command:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("name", ["prune", "compare", "train", "evaluate", "finetune", "resume"])
def test_every_option_of_a_long_help_stands_under_a_heading(name: str) -> None:
    command = command_of(name)
    assert isinstance(command, GroupedCommand)
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert {option.opts[0]: heading_of(option) for option in options if heading_of(option) not in ORDER} == {}
    said = CliRunner().invoke(cli, [name, "--help"]).stdout
    shown = [line[:-1] for line in said.splitlines() if re.fullmatch(r"[A-Z][a-z -]+:", line)]
    assert shown == [heading for heading in ORDER if heading in shown] + ["Other options"]
    # Nothing is lost on the way, and nothing said twice.
    listed = re.findall(r"^  (--[\w-]+)", said[said.index(f"\n{shown[0]}:") :], re.MULTILINE)
    flags = [next(flag for flag in option.opts if flag.startswith("--")) for option in options]
    assert sorted(listed) == sorted(flags)
