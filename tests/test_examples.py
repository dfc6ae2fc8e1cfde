"""The examples run and print what they promise; the doctests of the package hold."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deeppruning

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_model() -> None:
    printed = run("own_model.py")
    difference = float(re.search(r"silenced network: (\S+)", printed).group(1))
    assert difference < 1e-8
    assert "(1, 10)" in printed


@pytest.mark.slow
def test_segmentation(tmp_path: Path) -> None:
    lines = run("segmentation.py", str(tmp_path)).splitlines()
    assert [line.split()[0] for line in lines] == ["original", "heavy", "knee", "light"]
    flops = [int(line.split()[3].replace(",", "")) for line in lines]
    assert flops[0] > max(flops[1:])
    assert flops[3] == min(flops)
    assert float(lines[1].split()[2]) < 0.3


MODULES = sorted(module.name for module in pkgutil.walk_packages(deeppruning.__path__, "deeppruning."))


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
