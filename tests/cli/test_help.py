"""Long helps come under headings, and the tab key completes names, without waiting for torch."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from deeppruning.cli.completion import TABLE
from deeppruning.cli.main import cli
from deeppruning.cli.options.flags import Flag, GroupedCommand
from deeppruning.options import HEADINGS
from deeppruning.version import __version__

ROOT = Path(__file__).parent.parent.parent


def command_of(name: str) -> click.Command:
    command = getattr(importlib.import_module(f"deeppruning.cli.commands.{name}"), name)
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("name", ["prune", "compare", "train", "evaluate", "finetune", "pick", "resume"])
def test_every_option_of_a_long_help_stands_under_a_heading(name: str) -> None:
    command = command_of(name)
    assert isinstance(command, GroupedCommand)
    options = [
        option for option in command.params if isinstance(option, click.Option) and option.name != "help_all"
    ]
    flagged = [option for option in options if isinstance(option, Flag)]
    assert len(flagged) == len(options) and {option.heading for option in flagged} <= set(HEADINGS)
    said = CliRunner().invoke(cli, [name, "--help-all" if command.brief else "--help"]).stdout
    shown = [line[:-1] for line in said.splitlines() if re.fullmatch(r"[A-Z][a-z -]+:", line)]
    assert shown == [heading for heading in HEADINGS if heading in shown] + ["Other options"]
    # A command that was called by itself before keeps the help option of that call, which has no -h.
    others = said.split("\nOther options:\n")[1].strip().splitlines()
    assert re.fullmatch(r"(-h, )?--help +Show this message and exit\.", others[-1].strip())
    assert len(others) == (2 if command.brief else 1)
    # Nothing is lost on the way, and nothing said twice.
    listed = re.findall(r"^  (--[\w-]+)", said[said.index(f"\n{shown[0]}:") :], re.MULTILINE)
    flags = [next(flag for flag in option.opts if flag.startswith("--")) for option in options]
    assert sorted({*listed} - {"--help", "--help-all"}) == sorted(flags) and len(listed) == len({*listed})


def test_the_help_of_prune_shows_what_people_use_and_where_the_rest_is() -> None:
    command = command_of("prune")
    assert isinstance(command, GroupedCommand)
    short, whole = (CliRunner().invoke(cli, ["prune", flag]).stdout for flag in ("--help", "--help-all"))
    listed, known = ({*re.findall(r"^  (--[\w-]+)", said, re.MULTILINE)} for said in (short, whole))
    common = {option.opts[0] for option in command.params if isinstance(option, Flag) and option.common}
    assert listed - {"--help-all", "--help"} == common and 18 <= len(common) <= 23
    assert f"{len(known - listed)} more options: " in short and "more options: " not in whole
    assert len(short.splitlines()) < len(whole.splitlines()) / 2


def completed(*words: str) -> list[str]:
    """What the tab key offers after these words, the last of which is being typed."""
    *before, incomplete = words
    found = ShellComplete(cli, {}, "deeppruning", "_COMPLETE").get_completions(before, incomplete)
    return [item.value if item.type == "plain" else f"<{item.type}>" for item in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pr",), ["prune"]),
        (("prune", "resnet1"), ["resnet110"]),
        (("prune", "nets.py"), ["<file>"]),
        (("prune", "resnet20", "--data", "c"), ["cifar10", "cifar100"]),
        (("prune", "resnet20", "--data", "photos/"), ["<file>"]),
        (("prune", "resnet20", "--strat"), ["--strategy"]),
        (("prune", "resnet20", "--quiet", "--strategy", ""), ["guided", "paper"]),
        (("prune", "resnet20", "--objective", ""), ["flops", "params", "size", "latency"]),
        (("prune", "resnet20", "--preset", "p"), ["paper"]),
        (("prune", "--no-de"), ["--no-depth"]),
        (("prune", "resnet20", "--weights", ""), ["<file>"]),
        (("compare", "resnet20", "--methods", "l1,spa"), ["l1,span", "l1,span+refit"]),
        (("export", "runs/mine", "--format", "o"), ["onnx"]),
        (("export", "runs/mine", "--solution", "t"), ["target", "target-2", "target-3"]),
        (("export", ""), ["<dir>"]),
        (("resume", "runs/mine", "--model", "vgg"), ["vgg16", "vgg19"]),
        (("data", "mn"), ["mnist"]),
        (("evaluate", "--device", "c"), ["cpu", "cuda"]),
        (("nonsense", "x"), []),
    ],
)
def test_the_tab_key_completes(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


def test_completion_and_the_page_of_options_are_up_to_date() -> None:
    # By a process of its own: other tests enter methods and formats of theirs here.
    tool = ROOT / "tools" / "option_tables.py"
    done = subprocess.run([sys.executable, tool, "--print"], check=True, capture_output=True, text=True)
    table, page = json.loads(done.stdout)
    assert TABLE.read_text() == table, "run `python tools/option_tables.py`"
    assert (ROOT / "docs" / "options.md").read_text() == page, "run `python tools/option_tables.py`"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("prune", "resnet20", "--epochs", "3"), "--finetune-epochs"),
        (("prune", "resnet20", "--lr=3"), "--finetune-lr"),
        (("prune", "resnet20", "--max-flops", "3"), "--target flops=40%"),
        (("pick", "runs/mine", "--parameters", "3"), "--target params=30%"),
    ],
)
def test_unknown_options_are_answered_with_the_one_that_is_meant(words: tuple[str, ...], meant: str) -> None:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 2 and f"Did you mean {meant}?" in done.output


@pytest.mark.parametrize(
    ("words", "asked", "said"),
    [
        ([], {"COMP_WORDS": "deeppruning prune vgg", "COMP_CWORD": "2"}, "plain,vgg16\nplain,vgg19\n"),
        (["--help"], {}, "Make a trained convolutional network small enough to deploy."),
        (["--version"], {}, __version__),
    ],
)
def test_neither_completion_nor_help_wait_for_torch(
    words: list[str], asked: dict[str, str], said: str
) -> None:
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('loaded:', sorted({'torch', 'numpy', 'rich'} & set(sys.modules))))\n"
        "from deeppruning.cli.main import cli\n"
        "cli(prog_name='deeppruning')\n"
    )
    completing = {"_DEEPPRUNING_COMPLETE": "bash_complete", **asked} if asked else {}
    program = [sys.executable, "-c", script, *words]
    done = subprocess.run(program, env={**os.environ, **completing}, capture_output=True, text=True)
    assert said in done.stdout and done.stdout.endswith("\nloaded: []\n")
