"""Files that other programs read: the workflow that GitHub runs, and how to cite the software."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from deeppruning.system.toml import read_toml
from deeppruning.version import __version__

ROOT = Path(__file__).parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"
CITATION = ROOT / "CITATION.cff"


def test_the_workflow_runs_the_tests_with_every_python_that_is_promised() -> None:
    text = WORKFLOW.read_text()
    classifiers = read_toml(ROOT / "pyproject.toml")["project"]["classifiers"]
    pythons = [each.rsplit(" ", 1)[1] for each in classifiers if ":: Python :: 3." in each]
    (listed,) = re.findall(r"^ +python: \[(.+)\]$", text, re.MULTILINE)
    assert re.findall(r'"([\d.]+)"', listed) == pythons
    assert "system: [ubuntu-latest, macos-latest]" in text and "- run: make test\n" in text


@pytest.mark.parametrize(
    ("schema", "file"), [("github-workflows", WORKFLOW), ("citation-file-format", CITATION)]
)
@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="check-jsonschema is not installed")
def test_files_follow_their_schemas(schema: str, file: Path) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", file]
    done = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_the_workflow_passes_its_linter() -> None:
    done = subprocess.run(["actionlint", WORKFLOW], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_citation_names_this_version_and_the_paper() -> None:
    text = CITATION.read_text()
    assert re.findall(r"^version: (.+)$", text, re.MULTILINE) == [__version__]
    assert "doi: 10.1016/j.ins.2020.11.009" in text
