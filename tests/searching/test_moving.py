"""A run that goes on with another processor: what it has is kept, it is told, and rounding stops nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deeppruning as dp
from cli_search import guided_arguments, trained
from deeppruning.errors import RunError
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.runs import RunFolder, facts
from deeppruning.searching.events import Remark
from deeppruning.searching.moving import alike, sketch
from deeppruning.system.versions import computed_by, versions_line
from processors import OTHER_PROCESSOR, PLAINEST, capability
from search_helpers import digits, outcome, quick_finetune, quick_guided, tiny_net
from signalled import start, wait_until_stopped

ELSEWHERE = {"python": "3.12.0", "torch": "2.6.0", "processor": "Example 9000, AVX512"}


def scaled(factor: float) -> nn.Module:
    """The tiny network with all weights times a factor."""
    model = tiny_net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that another processor began, and that was stopped after two of three generations."""
    folder = tmp_path_factory.mktemp("begun") / "run"

    def stop(event: Any) -> None:
        if getattr(event, "generation", 0) == 2 and hasattr(event, "generations"):
            raise KeyboardInterrupt

    options: dict[str, Any] = {"search": quick_guided(), "finetune": quick_finetune(epochs=1), "workers": 1}
    with pytest.raises(KeyboardInterrupt):
        dp.prune(tiny_net(), *digits(), run_dir=folder, observer=stop, **options)
    with RunFolder.open(folder) as run:
        run.history.set_fact(facts.VERSIONS, ELSEWHERE)
    return folder


@pytest.fixture
def stopped(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "run"))


def test_it_goes_on_with_weights_and_images_that_differ_by_rounding(stopped: Path) -> None:
    with RunFolder.open(stopped) as run:
        before = [(one.genome.tolist(), one.evaluated.score) for one in run.history.candidates()]
        run.history.set_fact(facts.TASK, "a-hash-of-images-resized-by-another-processor")
    heard: list[Any] = []
    result = dp.resume(stopped, scaled(1 + 2e-7), *digits(), workers=1, observer=heard.append)
    after = [(one.genome.tolist(), one.evaluated.score) for one in result.candidates]
    assert after[: len(before)] == before and len(after) == 15 and len(before) == 11
    (told,) = [event for event in heard if isinstance(event, Remark) and event.about == "processor"]
    assert "Example 9000, AVX512 (torch 2.6.0)" in told.text and versions_line(computed_by()) in told.text
    page = collect(stopped)
    assert page["versions"]["processor"] == ELSEWHERE["processor"]
    assert page["versions"]["continued with"] == [versions_line(computed_by())]
    assert "continued with" in render(page)


def test_a_warning_tells_where_nobody_looks_on_and_once_only(stopped: Path) -> None:
    with pytest.warns(UserWarning, match=r"computed by Example 9000.*torch"):
        dp.resume(stopped, tiny_net(), *digits(), workers=1)
    heard: list[Any] = []
    dp.resume(stopped, tiny_net(), *digits(), workers=1, observer=heard.append)
    assert not any(isinstance(event, Remark) and event.about == "processor" for event in heard)


def test_other_weights_and_other_images_are_refused_all_the_same(stopped: Path) -> None:
    train, test = digits()
    with pytest.raises(RunError, match=r"other weights.*drawn or trained anew differ from processor"):
        dp.resume(stopped, scaled(1.001), train, test, workers=1)
    train.images[:, 0, 4, 4] += 9
    with pytest.raises(RunError, match="other training data"):
        dp.resume(stopped, tiny_net(), train, test, workers=1)
    with RunFolder.open(stopped) as run:
        run.history.set_fact(facts.VERSIONS, computed_by())
    with pytest.raises(RunError, match=r"other weights; give the same ones to continue, or start a new run$"):
        dp.resume(stopped, scaled(1 + 2e-7), *digits(), workers=1)


def test_what_was_recorded_is_followed_where_rounding_proposes_otherwise(stopped: Path) -> None:
    """As if the first processor had drawn another genome: there is one that both have looked at."""
    with RunFolder.open(stopped) as run:
        first, last = run.history.candidates()[1], run.history.candidates()[10]
        change = "UPDATE candidates SET genome = (SELECT genome FROM candidates WHERE id = ?) WHERE id = ?"
        run.history._write_rows(change, [(first.id, last.id)])
    result = dp.resume(stopped, tiny_net(), *digits(), workers=1, observer=lambda event: None)
    assert result.candidates[10].genome.tolist() == first.genome.tolist() and len(result.candidates) == 15
    with RunFolder.open(stopped) as run:
        run.history.set_fact(facts.VERSIONS, computed_by())
        run.history._write_rows(change, [(2, last.id)])
        run.history._write_rows("DELETE FROM facts WHERE key = ?", [("finished",)])
    with pytest.raises(RunError, match="candidate 10 of generation 2 is not the one recorded"):
        dp.resume(stopped, tiny_net(), *digits(), workers=1)


def test_a_sketch_tells_what_training_changes_from_rounding() -> None:
    torch.manual_seed(0)
    weights = {"a": torch.randn(50, 7), "b": torch.zeros(3), "c": torch.tensor(5), "d": torch.randn(2) * 1j}
    weights["e"] = torch.tensor([0.0, -torch.inf])
    known = sketch(weights)
    assert alike(known, sketch({**weights, "a": weights["a"] * (1 + 1e-7)}))
    swapped = weights["a"].clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    for name, other in (("a", swapped), ("a", weights["a"] * 1.001), ("b", torch.full((3,), 0.01))):
        assert not alike(known, sketch({**weights, name: other}))
    assert not alike(known, sketch({name: weights[name] for name in "abc"}))


def test_a_run_begun_here_goes_on_with_other_instructions(tmp_path: Path) -> None:
    """The real thing: killed in the search, resumed by a process whose torch uses other instructions."""
    there = "DEFAULT" if OTHER_PROCESSOR is PLAINEST else capability(OTHER_PROCESSOR)
    if there == torch.backends.cpu.get_cpu_capability():
        pytest.skip(f"this processor knows only one kind of instructions, {there}")
    out = tmp_path / "run"
    given = guided_arguments(*trained(tmp_path), out, "--finetune-epochs", 0)
    with start(signal.SIGSTOP, "generation 1/2", "prune", *given) as process:
        wait_until_stopped(process)
        process.kill()
    with RunFolder.open(out, read_only=True) as run:
        before = {one.id: one.evaluated for one in run.history.candidates() if one.evaluation is not None}
    command = [sys.executable, "-m", "deeppruning", "resume", str(out), "--workers", "1"]
    done = subprocess.run(command, env={**os.environ, **OTHER_PROCESSOR}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = there.replace("DEFAULT", "baseline instructions")
    assert "note: this run was computed by" in done.stdout and f", {told} (torch" in done.stdout
    with RunFolder.open(out, read_only=True) as run:
        kept = {one.id: one.evaluated for one in run.history.candidates()}
        assert len(kept) == 11 and run.history.get_fact(facts.FINISHED)
    assert len(before) >= 7
    for id_, known in before.items():
        assert (kept[id_].error, kept[id_].score, kept[id_].finished_at) == (
            known.error, known.score, known.finished_at,
        )  # fmt: skip
    assert outcome(out)["facts"]["continued_by"][0]["processor"].endswith(there)
    assert json.loads(json.dumps(collect(out)))["versions"]["continued with"][0].count(told) == 1
