"""Every command that is printed works as printed, in a shell whose PATH knows nothing of this program."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli_calls import call
from deeppruning.display.outcome import next_lines
from deeppruning.errors import DeepPruningError
from deeppruning.exporting import FORMATS
from deeppruning.runs import RunFolder
from deeppruning.system import commands as system_commands
from deeppruning.system.commands import command, command_for_page, has_extra, how_to_install, program

BARE = "/usr/bin:/bin"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder whose name has a space, the current one, with the network's files; the PATH is bare."""
    folder = tmp_path_factory.mktemp("my place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PATH", BARE)
        yield folder


@pytest.fixture(scope="module")
def said(place, finished_run):
    shutil.copytree(finished_run, "my run")
    return call("resume", "my run").stdout


def printed(text: str) -> list[list[str]]:
    """The words of the commands in a text: after `next (...):` or `continue with:`, or between backticks."""
    found = re.findall(r"^(?:next \([^)]*\)|.*continue with): (.*)$", text, re.M) + re.findall(
        r"`([^`]+)`", text
    )
    return [words for words in map(shlex.split, found) if words[: len(program())] == program()]


def refused(*given: object) -> str:
    with pytest.raises(DeepPruningError) as error:
        call(*given)
    return str(error.value)


def works(words: list[str]) -> str:
    return call(*words[len(program()) :]).stdout


def test_the_program_is_found_from_a_bare_shell(place):
    asked = subprocess.run(
        f"{command('--version')}", shell=True, env={"PATH": BARE}, capture_output=True, text=True
    )
    assert asked.returncode == 0 and asked.stdout.startswith("deeppruning, version")
    installer = how_to_install("onnx").partition(" install ")[0]
    asked = subprocess.run(f"{installer} --version", shell=True, env={"PATH": BARE}, capture_output=True)
    assert asked.returncode == 0


def next_steps() -> list[str]:
    with RunFolder.open("my run", read_only=True) as run:
        return next_lines(run, "knee")


def test_what_is_said_after_a_run_can_be_done(said, place):
    lines = next_steps()
    commands = printed("\n".join(lines))
    assert [words[len(program())] for words in commands] == ["export", "bench", "pick", "finetune"]
    assert len(lines) == 4 and "'my run'" in lines[0]
    assert printed(said)[-3:] == commands[-3:]  # an export only where a network is worth taking
    outcomes = [works(words) for words in commands]
    assert (place / "my run" / "export").is_dir() and "report: my run/report.html" in outcomes[1]
    assert "target flops=" in outcomes[2] and "met by" in outcomes[2]
    # A run that has a target is told how to get another.
    another = printed(call("resume", "my run").stdout)[-2]
    assert another[:-1] == commands[2][:-1] and another != commands[2]
    assert "target" in works(another)


@pytest.mark.slow
def test_what_an_error_advises_can_be_done(said, place):
    shutil.copytree("my run", "other run")
    (Path("other run") / "light.safetensors").unlink()
    again = refused("export", "other run", "--solution", "light")
    (advised,) = printed(again)
    assert advised[len(program()) :] == ["resume", "other run"] and "light" in works(advised)
    (advised,) = printed(refused("export", "other run", "--solution", "candidate-2"))
    assert "saved in other run/candidate-2.safetensors" in works(advised)
    assert printed(refused("prune", "a:", "--data", "digits")) == [[*program(), "models"]]
    told = refused("prune", "resnet20", "--data", "digits", "--out", "other run")
    assert "other run is finished" in works(printed(told)[0])


def test_without_onnx_what_works_is_said(said, place, monkeypatch):
    monkeypatch.setattr(system_commands, "find_spec", lambda name: None if name == "onnx" else name)
    assert not has_extra("onnx")
    told = "\n".join(next_steps())
    assert f": {how_to_install('onnx')}\n" in told
    first = printed(told)[0]
    assert first[-1] in FORMATS and first[-1] != "onnx"


def test_a_program_is_named_as_short_as_works(tmp_path, monkeypatch):
    script = tmp_path / "venv" / "bin" / "deeppruning"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", BARE)
    monkeypatch.setattr(sys, "argv", ["venv/bin/deeppruning", "demo"])
    assert (
        command("resume", "a b") == command_for_page("resume", "a b") == "venv/bin/deeppruning resume 'a b'"
    )
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert command("demo") == "venv/bin/deeppruning demo"
    monkeypatch.chdir("/usr")
    assert command("demo") == f"{script} demo" and command_for_page("demo") == "deeppruning demo"
    monkeypatch.setenv("PATH", f"{script.parent}:{BARE}")
    assert command("demo") == "deeppruning demo"
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "other" / "python"))
    assert command("demo") == f"{tmp_path}/other/python -m deeppruning demo"
