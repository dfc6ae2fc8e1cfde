"""Fine-tuning that diverges: the others are finished, it starts again more slowly, or it has failed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from torch import nn

import deeppruning as dp
from deeppruning.cli.main import cli
from deeppruning.display.lines import as_record
from deeppruning.display.progress import JsonProgress, PlainProgress
from deeppruning.errors import Diverged, RunError
from deeppruning.exporting import read_network
from deeppruning.jobs.network_table import NetworkTable, read_rows
from deeppruning.reporting.data import collect
from deeppruning.runs import Candidate, Evaluation, RunFolder, Status
from deeppruning.searching.events import CandidateDone, EpochDone, FinetuneDiverged, Started
from deeppruning.searching.task import Task
from deeppruning.training.checkpoint import EpochReport
from search_helpers import EXAMPLE, digits, outcome, quick_finetune, quick_search, tiny_net


class Unsteady(Task):
    """Two rounds; above a rate it diverges in the second, for networks whose width is among `widths`."""

    def __init__(self, calls: Path, limit: float, *, widths: tuple[int, ...] = (), rate: float = 1.0) -> None:
        self.calls, self.limit, self.widths, self.rate = calls, limit, widths, rate

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        return (1 - sum(parameter.numel() for parameter in model.parameters()) / 1100) ** 3

    @property
    def rounds(self) -> int:
        return 2

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport:
        width = model.stem.out_channels * 10 + model.inner.out_channels  # type: ignore[union-attr,operator]
        with self.calls.open("a") as file:
            file.write(f"{width} {round} {self.rate:g}\n")
        assert (round == 1) != checkpoint.exists()
        before = float(checkpoint.read_text()) if round > 1 else self.rate
        assert before == self.rate, "the state is that of another attempt"
        if round == 2 and self.rate > self.limit and width in self.widths:
            raise Diverged(f"lost at {self.rate:g}")
        checkpoint.write_text(repr(self.rate))
        model.linear.bias.data.fill_(self.rate)  # type: ignore[union-attr,operator]
        return EpochReport(round, 0.5, 0.5, None, self.rate, 1.0, 1.0)

    def slower(self, factor: float) -> "Unsteady":
        return Unsteady(self.calls, self.limit, widths=self.widths, rate=self.rate * factor)

    def test_error(self, model: nn.Module) -> float:
        return 0.25


def widths_of(result: Any) -> dict[str, int]:
    return {
        one.role: one.model.stem.out_channels * 10 + one.model.inner.out_channels for one in result.solutions
    }


def prune(folder: Path, task: Task, **options: Any) -> Any:
    return dp.prune(
        tiny_net(),
        run_dir=folder,
        task=task,
        example_input=EXAMPLE,
        search=quick_search(),
        workers=1,
        **options,
    )


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The width of the lightest pick, which no other has."""
    folder = tmp_path_factory.mktemp("steady")
    found = widths_of(prune(folder / "run", Unsteady(folder / "none", 1.0)))
    assert list(found.values()).count(found["light"]) == 1
    return found["light"]


def test_a_pick_that_diverges_starts_again_more_slowly(tmp_path: Path, light: int) -> None:
    events: list[Any] = []
    task = Unsteady(tmp_path / "calls", 0.1, widths=(light,))
    result = prune(tmp_path / "run", task, observer=events.append)
    calls = [line for line in task.calls.read_text().splitlines() if line.startswith(f"{light} ")]
    assert calls == [f"{light} 1 1", f"{light} 2 1", f"{light} 1 0.1", f"{light} 2 0.1"]
    assert (result.light.lr_factor, result.heavy.lr_factor) == (0.1, 1.0)
    assert result.failed == {}
    assert torch.equal(result.light.model.linear.bias, torch.full((10,), 0.1))
    told = [event for event in events if isinstance(event, FinetuneDiverged)]
    assert [(event.roles, event.reason, event.lr_factor) for event in told] == [
        (("light",), "lost at 1", 0.1)
    ]
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        rates = [row.lr for row in run.history.epochs(f"candidate-{result.light.id}")]
        assert run.history.get_fact("solution/light")["lr_factor"] == 0.1
    assert rates == [0.0, 0.1, 0.1]  # epoch 0 is before training, and stays
    assert sorted(path.suffix for path in (tmp_path / "run" / "finetune").iterdir()) == [".safetensors"] * 4
    with safe_open(result.light.path, framework="pt") as file:
        assert file.metadata()["lr_factor"] == "0.1"


@pytest.mark.slow
def test_a_pick_that_always_diverges_has_failed_and_the_others_are_saved(tmp_path: Path, light: int) -> None:
    task = Unsteady(tmp_path / "calls", 0.0, widths=(light,))
    result = prune(tmp_path / "run", task)
    assert result.failed == {"light": "lost at 1; then lost at 0.1; then lost at 0.01"}
    assert {one.role for one in result.solutions} == {"knee", "heavy"}
    assert {one.test_error for one in result.solutions} == {0.25}
    with pytest.raises(RunError, match=r"no light network, its fine-tuning failed: lost at 1; .*solutions"):
        _ = result.light
    assert not (tmp_path / "run" / "light.safetensors").exists()
    assert dp.load(tmp_path / "run" / "heavy.safetensors", tiny_net())(EXAMPLE).shape == (1, 10)
    before, called = outcome_without_light(tmp_path / "run"), task.calls.read_text()
    again = dp.resume(tmp_path / "run", tiny_net(), task=task, example_input=EXAMPLE, workers=1)
    assert again.failed == result.failed
    assert outcome_without_light(tmp_path / "run") == before
    assert task.calls.read_text() == called, "nothing is trained again"
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        rows = {row.network: row for row in read_rows(run)}
    assert rows["light"].failure == result.failed["light"]
    lines = NetworkTable(list(rows.values())).text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("light")] == ["failed"]
    shown = {one["role"]: one for one in collect(tmp_path / "run")["solutions"]}
    assert {role: one["final"] for role, one in shown.items()} == {
        "heavy": True,
        "knee": True,
        "light": False,
    }
    assert shown["light"]["failure"] == result.failed["light"]
    finished = CliRunner().invoke(cli, ["resume", str(tmp_path / "run")])
    assert "is finished" in finished.output and "light failed: lost at 1" in finished.output
    with pytest.raises(RunError, match=r"no light network, its fine-tuning failed .*there are: heavy, knee"):
        read_network(tmp_path / "run", "light", model=tiny_net())
    id_ = collect(tmp_path / "run")["picks"][-1]["light"]
    with pytest.raises(RunError, match=f"fine-tuning of candidate {id_} failed: lost at 1;.*other options"):
        dp.finetune(tmp_path / "run", tiny_net(), candidate=id_, task=task, example_input=EXAMPLE)


def outcome_without_light(run_dir: Path) -> Any:
    (run_dir / "light.safetensors").touch()
    try:
        return outcome(run_dir)
    finally:
        (run_dir / "light.safetensors").unlink()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, light: int) -> Any:
    """What comes of a run that is not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    prune(folder / "run", Unsteady(folder / "calls", 0.01, widths=(light,)))
    return outcome(folder / "run")


@pytest.mark.parametrize(
    "stop", [2, 5, *(pytest.param(one, marks=pytest.mark.slow) for one in (4, 6, 7))]
)  # round by round, around the two divergences
def test_stopped_anywhere_it_ends_the_same(tmp_path: Path, light: int, whole: Any, stop: int) -> None:
    heard = 0

    def stops(event: Any) -> None:
        nonlocal heard
        if isinstance(event, (EpochDone, FinetuneDiverged)):
            heard += 1
            if heard == stop + 1:
                raise KeyboardInterrupt

    task = Unsteady(tmp_path / "calls", 0.01, widths=(light,))
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path / "stopped", task, observer=stops)
    dp.resume(tmp_path / "stopped", tiny_net(), task=task, example_input=EXAMPLE, workers=1)
    assert outcome(tmp_path / "stopped") == whole


class Breaks(Unsteady):
    """Raises instead of diverging, until its mark is there."""

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport:
        if not self.calls.with_name("mended").exists():
            try:
                return super().finetune(model, round=round, seed=seed, checkpoint=checkpoint)
            except Diverged:
                raise OSError("no memory left") from None
        self.limit = 1.0
        return super().finetune(model, round=round, seed=seed, checkpoint=checkpoint)


def test_a_pick_that_breaks_is_told_once_the_others_are_saved(tmp_path: Path, light: int) -> None:
    task = Breaks(tmp_path / "calls", 0.0, widths=(light,))
    with pytest.raises(RunError, match=r"(?s)the rest is saved, resume the run.*OSError: no memory left"):
        prune(tmp_path / "run", task)
    assert (tmp_path / "run" / "heavy.safetensors").exists()
    assert not (tmp_path / "run" / "light.safetensors").exists()
    (tmp_path / "mended").touch()
    result = dp.resume(tmp_path / "run", tiny_net(), task=task, example_input=EXAMPLE, workers=1)
    assert (len(result.solutions), result.failed, result.light.lr_factor) == (3, {}, 1.0)


def test_terminal_and_machine_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    lost = Evaluation(genome=np.ones(3, dtype=bool), error=None, cost=None, flops=40, params=4, seconds=1.0,
                      worker="", status=Status.FAILED, detail="Traceback\nOSError: no luck\n")  # fmt: skip
    events = [
        Started("run", 3, 1, 5, 0, 0.5, 100, 10),
        CandidateDone(Candidate(0, 1, lost.genome, lost), fresh=True),
        FinetuneDiverged(4, ("knee",), "the loss is nan", 0.1),
        FinetuneDiverged(4, ("knee",), "the loss is nan", None),
    ]
    plain, machine = PlainProgress(), JsonProgress()
    for event in events:
        plain(event)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("candidate 1/5") and lines[1].endswith("failed: OSError: no luck")
    assert lines[2] == (
        "fine-tuning knee diverged (the loss is nan); it starts again with 0.1 of the learning rate"
    )
    assert lines[3].endswith("it has failed")
    assert plain.state.troubles() == "1 failed" and plain.state.points() == []
    for event in events[1:3]:
        kind, facts = as_record(event)
        machine.tell(kind, **facts)
    candidate, diverged = map(json.loads, capsys.readouterr().out.splitlines())
    assert (candidate["error"], candidate["cost"], candidate["status"]) == (None, None, "failed")
    assert (diverged["event"], diverged["lr_factor"]) == ("diverged", 0.1)


@pytest.mark.slow
def test_real_training_at_an_absurd_rate(tmp_path: Path) -> None:
    train, test = digits()
    result = dp.prune(
        tiny_net(),
        train,
        test,
        run_dir=tmp_path / "run",
        search=quick_search(generations=1),
        finetune=quick_finetune(lr=1e30),
        workers=1,
    )
    assert result.solutions == () and set(result.failed) == {"knee", "heavy", "light"}
    assert all("lower the learning rate" in reason for reason in result.failed.values())
    assert result.original.test_error is not None
    assert "its fine-tuning failed" in collect(tmp_path / "run")["verdict"]
    json.dumps(collect(tmp_path / "run"), allow_nan=False)
    again = dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1)
    assert again.failed == result.failed


def test_a_rate_that_holds_at_a_tenth(tmp_path: Path) -> None:
    """The first rate overflows, a tenth or a hundredth does not; the checkpoint of one is not the other's."""
    train, test = digits()
    options: dict[str, Any] = {"search": quick_search(generations=1), "workers": 1}
    finetune = quick_finetune(lr=3e19, epochs=1, momentum=0.0, nesterov=False)
    result = dp.prune(tiny_net(), train, test, run_dir=tmp_path / "run", finetune=finetune, **options)
    assert {one.lr_factor for one in result.solutions} <= {0.1, 0.01, 1.0}
    for solution in result.solutions:
        assert all(torch.isfinite(tensor).all() for tensor in solution.model.state_dict().values())
