"""The format of a run does not change silently: a stored run opens, loads, resumes and can be reported on.

A change that makes these tests fail needs another `FORMAT` in `runs/database.py` and a new `fixtures/run`.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

import deeppruning as dp
from deeppruning import pick
from deeppruning.reporting import write_report
from deeppruning.runs import RunFolder, facts
from search_helpers import STORED_RUN, TinyNet, digits, outcome, stored_net


@pytest.fixture
def stored_run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED_RUN, tmp_path / "run"))


def test_history_opens(stored_run: Path) -> None:
    expected = json.loads((stored_run / "expected.json").read_text())
    with RunFolder.open(stored_run, read_only=True) as run:
        snapshot = run.history.snapshot()
        assert run.version == "0.1.0"
    assert len(snapshot["candidates"]) == expected["candidates"]
    assert snapshot["facts"]["solution/knee"]["flops"] == expected["knee_flops"]
    assert max(snapshot["picks"].items())[1]["knee"] == expected["knee_id"]


def test_solution_loads(stored_run: Path) -> None:
    expected = json.loads((stored_run / "expected.json").read_text())
    picture = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    output = dp.load(stored_run / "knee.safetensors", TinyNet())(picture)[0]
    assert torch.allclose(output, torch.tensor(expected["knee_output"]), atol=1e-4)


def test_report_is_written(stored_run: Path) -> None:
    assert "knee" in write_report(stored_run).read_text()


def test_resuming_leaves_it_as_it_was(stored_run: Path) -> None:
    before = outcome(stored_run)
    train, test = digits()
    result = dp.resume(stored_run, stored_net(), train, test, workers=1)
    assert result.knee.flops == json.loads((stored_run / "expected.json").read_text())["knee_flops"]
    assert outcome(stored_run)["candidates"] == before["candidates"]


def test_a_target_is_picked_from_it(stored_run: Path) -> None:
    train, test = digits()
    with RunFolder.open(stored_run) as run:
        original = run.history.get_fact(facts.ORIGINAL_FIGURES)
    found = pick(stored_run, stored_net(), train, test, target={"flops": 0.8})
    assert found.path == stored_run / "target.safetensors" and found.flops <= 0.8 * original["flops"]
