"""Fine-tuning for a time or for part of an epoch, at a rate that is found by trial; and without labels."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.errors import InputError
from deeppruning.jobs.result import Result
from deeppruning.reporting.data import collect
from deeppruning.runs import RunFolder
from deeppruning.runs.facts import plan_fact, plan_line
from deeppruning.searching.events import EpochDone, FinetunePlanned
from search_helpers import TinyNet, digits, quick_search


def trained_net() -> TinyNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TinyNet(12)


def prune(folder: Path, observer: Any = lambda event: None, **options: Any) -> Result:
    train, test = digits(400)
    return dp.prune(
        trained_net(), train, test, run_dir=folder,
        search=quick_search(offspring=2, generations=1, mutation=0.2),
        finetune=dp.FinetuneConfig(batch_size=50, crop=0, flip=False, **options), workers=1,
        observer=observer, report=False,
    )  # fmt: skip


def plan_of(result: Result, id_: int) -> dict[str, Any]:
    with RunFolder.open(result.run_dir, read_only=True) as run:
        return run.history.get_fact(plan_fact(f"candidate-{id_}")) or {}


def epochs_of(result: Result, id_: int) -> list[int]:
    with RunFolder.open(result.run_dir, read_only=True) as run:
        return [row.epoch for row in run.history.epochs(f"candidate-{id_}")]


def test_a_time_is_planned_once_and_kept(tmp_path: Path) -> None:
    events: list[Any] = []
    result = prune(tmp_path / "run", events.append, minutes=0.02)
    plans = {event.id: event for event in events if isinstance(event, FinetunePlanned)}
    assert plans.keys() == {solution.id for solution in result.solutions}
    for id_, plan in plans.items():
        kept = plan_of(result, id_)
        assert (kept["epochs"], kept["lr"]) == (plan.epochs, plan.lr)
        assert plan.epochs * 7 * plan.step_seconds <= 1.2 * (1 + 1e-9)  # 320 or 360 images in batches of 50
        assert epochs_of(result, id_)[-1] == -int(-plan.epochs // 1)
    shown = {event.epochs for event in events if isinstance(event, EpochDone)}
    assert shown <= {-int(-plan.epochs // 1) for plan in plans.values()} | {0}
    for curve in collect(result.run_dir)["curves"]:
        assert curve["plan"] == plan_line(plan_of(result, curve["id"]))
        assert f"{plans[curve['id']].epochs:.3g} epochs in the time" in curve["plan"]


def test_a_killed_training_goes_on_by_its_plan(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(event: Any) -> None:
        if isinstance(event, EpochDone) and event.report.epoch == 1:
            raise Killed

    with pytest.raises(Killed):
        prune(tmp_path / "run", kill, epochs=2.5)
    train, test = digits(400)
    resumed = dp.resume(tmp_path / "run", trained_net(), train, test, workers=1, report=False)
    whole = prune(tmp_path / "whole", epochs=2.5)
    assert epochs_of(whole, whole.knee.id) == [0, 1, 2, 3]
    for role in ("knee", "heavy", "light"):
        ours, theirs = (getattr(result, role).model.state_dict() for result in (resumed, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_time_without_room_for_steps_leaves_the_network_as_refitted(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("deeppruning.training.planning.FEWEST_STEPS", 10**9)
    result = prune(tmp_path / "run", minutes=0.02)
    untrained = prune(tmp_path / "untrained", epochs=0)
    ours, theirs = result.knee.model.state_dict(), untrained.knee.model.state_dict()
    assert epochs_of(result, result.knee.id) == [0]
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def smooth_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.Tanh(), nn.Conv2d(12, 12, 3), nn.Tanh(), nn.Conv2d(12, 3, 3),
    ).eval()  # fmt: skip


def front_of(inputs: torch.Tensor) -> dp.Front:
    search = dp.SearchConfig(offspring=3, generations=1, round_to=1, threads=1)
    return dp.search(smooth_net(), inputs[:64], search=search, workers=1, progress=False)


def drift(thin: nn.Module, inputs: torch.Tensor) -> float:
    with torch.no_grad():
        return float((thin(inputs) - smooth_net()(inputs)).square().mean())


def test_without_labels_a_network_comes_nearer_to_its_original() -> None:
    inputs = torch.randn(1200, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    unseen = torch.randn(400, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    refitted = front_of(inputs).at(flops=0.6)
    before = drift(refitted.model, unseen)
    tuned = dp.finetune(refitted, inputs, finetune=dp.FinetuneConfig(epochs=6, temperature=16.0), threads=1)
    assert not tuned.refitted
    assert tuned.genome is refitted.genome
    assert drift(tuned.model, unseen) < 0.9 * before
    assert drift(refitted.model, unseen) == before  # which stays as it was


def test_where_tuning_does_not_help_the_refitted_weights_stay() -> None:
    inputs = torch.randn(80, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    refitted = front_of(inputs).at(flops=0.6)
    with pytest.warns(UserWarning, match="the refitted weights are kept"):
        tuned = dp.finetune(refitted, inputs, finetune=dp.FinetuneConfig(epochs=3, lr=5.0), threads=1)
    assert tuned.refitted
    theirs = refitted.model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in tuned.model.state_dict().items())


def test_what_cannot_be_tuned_is_refused() -> None:
    inputs = torch.randn(80, 1, 8, 8)
    solution = front_of(inputs).at(flops=0.6)
    with pytest.raises(InputError, match="inputs are needed"):
        dp.finetune(solution)
    with pytest.raises(InputError, match="at least 64 inputs"):
        dp.finetune(solution, inputs[:20])
    with pytest.raises(InputError, match="which candidate"):
        dp.finetune("runs/none")
