"""Every step of docs/first-steps.md runs and prints what the page shows; flags of commands exist."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli_calls import call
from deeppruning.cli.completion import TABLE
from deeppruning.version import __version__

DOCS = Path(__file__).parent.parent / "docs"
STEPS = (DOCS / "first-steps.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LEFT_OUT = ("pip", "deeppruning demo", "deeppruning watch")


def commands(text: str) -> list[str]:
    """The commands of a block, each on one line and without remarks."""
    whole = re.sub(r"\\\n\s*", "", text)
    return [line.split("  #")[0].strip() for line in whole.splitlines() if line.strip()]


def shape(line: str) -> str:
    """A pattern for a line: numbers and spaces may differ, and `...` stands for anything."""
    pieces = re.split(r"(\.\.\.|[\d.,]+(?:e-\d+)?|\s+|-(?=\s))", line)
    kinds = {"...": ".*"}
    return "".join(
        kinds.get(piece) or (r"\s+" if piece.isspace() else r"[-\d.,e]+" if odd else re.escape(piece))
        for place, piece in enumerate(pieces)
        for odd in [place % 2 == 1]
    )


def test_a_shape_allows_other_numbers_and_no_other_words() -> None:
    line = shape("knee  3.06 %   83.10 k (0.89x) ...")
    assert re.fullmatch(line, "knee 12.5 %  9.1 k (1.00x) or so")
    assert not re.fullmatch(line, "light 12.5 %  9.1 k (1.00x) or so")


@pytest.mark.parametrize("page", ["first-steps.md", "questions.md"])
def test_commands_have_flags_that_exist(page: str) -> None:
    table = json.loads(TABLE.read_text())["commands"]
    blocks = [text for language, text in BLOCK.findall((DOCS / page).read_text()) if not language]
    given = [
        shlex.split(line) for text in blocks for line in commands(text) if line.startswith("deeppruning ")
    ]
    assert len(given) > 8
    for words in given:
        if words[1].startswith("-"):
            continue
        known = {flag for row in table[words[1]] for flags in row["flags"] for flag in flags.split("/")} | {
            "--help",
            "--help-all",
        }
        assert {word.split("=")[0] for word in words[2:] if word.startswith("--")} <= known, " ".join(words)


def test_the_page_names_this_version() -> None:
    assert f"\ndeeppruning, version {__version__}\n" in STEPS


@pytest.mark.slow
def test_the_steps_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    said, names, compared = "", {}, 0
    for language, text in BLOCK.findall(STEPS):
        if language == "text":
            shown = [line.rstrip() for line in said.splitlines()]
            for line in filter(None, map(str.strip, text.splitlines())):
                assert any(re.fullmatch(shape(line), each.strip()) for each in shown), f"{line}\n\n{said}"
                compared += 1
        elif language == "python" and text.startswith("# net.py\n"):
            (tmp_path / "net.py").write_text(text)
        elif language != "console":  # what a demo printed once
            said = _printed(text, names) if language == "python" else _run(commands(text))
    assert compared > 25


def _printed(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "first-steps.md", "exec"), names)
    return printed.getvalue()


def _run(lines: list[str]) -> str:
    kept = [line for line in lines if not line.startswith(LEFT_OUT)]
    return "".join(call(*shlex.split(line)[1:]).output for line in kept)
