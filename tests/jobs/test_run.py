"""Whole runs on real digits: the promises of the algorithm, and independence from the workers."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.config import SearchConfig
from deeppruning.errors import DeepPruningError, RunError
from deeppruning.jobs.result import Result
from deeppruning.models import create_model
from deeppruning.runs import RunFolder
from deeppruning.searching.events import CandidateDone, EpochDone, GenerationDone, SolutionSaved, Started
from deeppruning.searching.task import Task
from search_helpers import (
    EXAMPLE,
    SignalsItsWorkerOnce,
    TinyNet,
    digits,
    outcome,
    quick_finetune,
    quick_search,
    tiny_net,
)


def run_tiny(folder: Path, **options: Any) -> Result:
    train, test = digits()
    search = options.pop("search", None) or quick_search()
    finetune = options.pop("finetune", None) or quick_finetune()
    workers = options.pop("workers", 1)
    return dp.prune(
        options.pop("model", None) or tiny_net(),
        train,
        test,
        run_dir=folder,
        search=search,
        finetune=finetune,
        workers=workers,
        **options,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet20", "vgg16", "densenet50"])
def test_one_network_of_each_family(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, num_classes=10, in_channels=1, image_size=8)
    train, test = digits(train=40, test=40)
    result = dp.prune(
        model,
        train,
        test,
        run_dir=tmp_path / "run",
        search=quick_search(offspring=2, generations=2, sample=20, eval_batch_size=10),
        finetune=quick_finetune(epochs=1),
        workers=1,
    )
    assert len(result.candidates) == 3 + 2 + 2
    assert result.heavy.train_error == min(c.train_error for c in result.candidates)
    assert result.light.flops == min(c.flops for c in result.candidates)
    images = torch.randn(2, 1, 8, 8)
    for solution in result.solutions:
        assert solution.model(images).shape == (2, 10)
        assert sum(p.numel() for p in solution.model.parameters()) == solution.params
        assert solution.flops < result.original.flops
        assert solution.flops_pruned == 1 - solution.flops / result.original.flops
        assert torch.equal(dp.load(solution.path)(images), solution.model(images))


def test_plus_never_loses_the_best_and_events_tell_the_story(tmp_path: Path) -> None:
    events: list[Any] = []
    result = run_tiny(tmp_path / "run", observer=events.append)
    generations = [event for event in events if isinstance(event, GenerationDone)]
    heavy = [event.picks["heavy"].train_error for event in generations]
    light = [event.picks["light"].flops for event in generations]
    assert heavy == sorted(heavy, reverse=True)
    assert light == sorted(light, reverse=True)
    assert result.heavy.train_error == min(c.train_error for c in result.candidates)
    counts = {kind: sum(isinstance(event, kind) for event in events) for kind in (Started, CandidateDone)}
    assert counts == {Started: 1, CandidateDone: SearchConfig.paper(offspring=4, generations=3).evaluations}
    unique = len({solution.id for solution in result.solutions})
    epochs = [event.report.epoch for event in events if isinstance(event, EpochDone)]
    assert sorted(epochs) == sorted([0, 1, 2] * unique)
    saved = [event.solution.role for event in events if isinstance(event, SolutionSaved)]
    assert saved == ["knee", "heavy", "light"]


def test_comma_picks_from_the_last_offspring_only(tmp_path: Path) -> None:
    result = run_tiny(
        tmp_path / "run", search=quick_search(selection="comma"), finetune=quick_finetune(epochs=0)
    )
    last = {c.id for c in result.candidates if c.generation == 3}
    assert {solution.id for solution in result.solutions} <= last


@pytest.mark.slow
# test_guided_search.py asks the same of the default search.
def test_result_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 2):
        run_tiny(tmp_path / str(workers), workers=workers)
    assert outcome(tmp_path / "1") == outcome(tmp_path / "2")


@pytest.mark.slow
# Every backend is asked for it in test_backends.py.
def test_killed_worker_is_replaced_and_its_candidate_retried(tmp_path: Path) -> None:
    events: list[Any] = []
    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=SignalsItsWorkerOnce(tmp_path / "mark", signal.SIGKILL),
        example_input=EXAMPLE,
        search=quick_search(),
        workers=2,
        observer=events.append,
    )
    assert all(candidate.status == "ok" for candidate in result.candidates)
    assert max(event.attempts for event in events if isinstance(event, CandidateDone)) == 2


class FailsForWideNetworks(Task):
    """Raises for some candidates, gives no number for others."""

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        if seed % 3 == 0:
            raise RuntimeError("out of luck")
        return float("nan") if seed % 3 == 1 else 0.25


def test_failed_and_diverged_candidates_have_no_objectives(tmp_path: Path) -> None:
    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=FailsForWideNetworks(),
        example_input=EXAMPLE,
        search=quick_search(offspring=8, generations=1),
        workers=1,
    )
    by_status = {
        status: [c for c in result.candidates if c.status == status]
        for status in ("ok", "diverged", "failed")
    }
    assert all(by_status.values()), "the seeds should bring all three about"
    assert {c.train_error for c in by_status["ok"]} == {0.25}
    lost = by_status["diverged"] + by_status["failed"]
    assert {(c.train_error, c.cost) for c in lost} == {(None, None)}
    assert {c.reason for c in by_status["failed"]} == {"RuntimeError: out of luck"}
    assert {c.reason for c in by_status["diverged"]} == {"the error is nan, not a finite number"}
    graph = dp.ChannelGraph(tiny_net(), EXAMPLE)
    assert all((c.flops, c.params) == (graph.flops(c.genome), graph.params(c.genome)) for c in lost)
    assert not {c.id for c in lost} & {solution.id for solution in result.solutions}


class LargeErrors(Task):
    """Errors of about 5, as a loss has them; every third candidate fails."""

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        if seed % 3 == 0:
            raise RuntimeError("out of luck")
        return 5.0 + (seed % 100) / 1000


def nan_for_some(model: nn.Module) -> float:
    width = model.stem.out_channels  # type: ignore[union-attr]
    return float("nan") if width == 5 else 7.0 + width / 100


def test_a_failed_candidate_is_no_pick_whatever_the_scale_of_the_others(tmp_path: Path) -> None:
    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=LargeErrors(),
        example_input=EXAMPLE,
        search=quick_search(offspring=6),
        objective=nan_for_some,
        workers=1,
    )
    good = [c for c in result.candidates if c.status == "ok"]
    reasons = {c.reason for c in result.candidates if c.status == "failed"}
    assert reasons == {
        "the second objective is nan, not a finite number",
        "RuntimeError: out of luck",
    }
    assert {solution.id for solution in result.solutions} <= {c.id for c in good}
    assert result.heavy.train_error == min(c.train_error for c in good if c.train_error is not None)
    assert min(c.cost for c in good if c.cost is not None) == next(
        c.cost for c in good if c.id == result.light.id
    )


class NothingAtFirst(Task):
    """Gives no number until its mark is there."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        return (seed % 1000) / 1000 if self.mark.exists() else float("nan")


def test_a_first_generation_that_diverges_as_a_whole_stops_the_run_and_is_tried_again(tmp_path: Path) -> None:
    task = NothingAtFirst(tmp_path / "mark")
    common: dict[str, Any] = {"task": task, "example_input": EXAMPLE, "workers": 1}
    with pytest.raises(RunError, match=r"generation 1 .*7 diverged"):
        dp.prune(tiny_net(), run_dir=tmp_path / "run", search=quick_search(), **common)
    task.mark.touch()
    result = dp.resume(tmp_path / "run", tiny_net(), **common)
    assert all(candidate.status == "ok" for candidate in result.candidates)


class AlwaysFails(Task):
    """A user's mistake."""

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        raise ValueError("this loss is not defined")


def test_a_mistake_in_the_task_is_shown_and_spoils_nothing(tmp_path: Path) -> None:
    common: dict[str, Any] = {"example_input": EXAMPLE, "workers": 1}
    with pytest.raises(RunError, match="this loss is not defined"):
        dp.prune(tiny_net(), run_dir=tmp_path / "run", task=AlwaysFails(), search=quick_search(), **common)
    fixed = SignalsItsWorkerOnce(tmp_path, signal.SIGKILL)  # the mark exists, so it just works
    result = dp.resume(tmp_path / "run", tiny_net(), task=fixed, **common)
    assert all(candidate.status == "ok" for candidate in result.candidates)


def test_identical_genomes_are_evaluated_once(tmp_path: Path) -> None:
    seen: list[int] = []

    class Counts(Task):
        def candidate_error(self, model: nn.Module, seed: int) -> float:
            seen.append(seed)
            return 0.5

    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=Counts(),
        example_input=EXAMPLE,
        search=quick_search(mutation=0.0),
        workers=1,
    )
    assert len(result.candidates) == 15
    assert len(seen) == 1


def params_of(model: nn.Module) -> float:
    return float(sum(p.numel() for p in model.parameters()))


@pytest.mark.parametrize("objective", ["params", "latency", params_of])
def test_second_objective_can_be_replaced(tmp_path: Path, objective: Any) -> None:
    search = quick_search(generations=1, objective=objective) if isinstance(objective, str) else None
    chosen = None if isinstance(objective, str) else objective
    result = run_tiny(
        tmp_path / "run",
        search=search or quick_search(generations=1),
        objective=chosen,
        finetune=quick_finetune(epochs=0),
    )
    assert result.light.id == min(result.candidates, key=lambda c: (c.cost, c.train_error)).id
    if objective != "latency":
        assert all(candidate.cost == candidate.params for candidate in result.candidates)


def test_recalibration_trains_nothing(tmp_path: Path) -> None:
    result = run_tiny(
        tmp_path / "run", search=quick_search(evaluation="recalibrate"), finetune=quick_finetune(epochs=0)
    )
    original = tiny_net().state_dict()
    weights = result.heavy.model.state_dict()
    assert set(weights) == set(original)
    kept = [
        row for row in original["stem.weight"] if any(torch.equal(row, own) for own in weights["stem.weight"])
    ]
    assert len(kept) == len(weights["stem.weight"])


def test_the_network_given_is_left_as_it_is(tmp_path: Path) -> None:
    model = tiny_net().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    run_tiny(tmp_path / "run", model=model)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.slow
def test_distillation_and_training_from_scratch_change_the_weights_only(tmp_path: Path) -> None:
    results = {
        name: run_tiny(
            tmp_path / name, search=quick_search(generations=1), finetune=quick_finetune(**options)
        )
        for name, options in {
            "plain": {},
            "distilled": {"distill": 0.7},
            "scratch": {"from_scratch": True},
        }.items()
    }
    genomes = {result.knee.genome.tobytes() for result in results.values()}
    assert len(genomes) == 1
    stems = [result.knee.model.state_dict()["stem.weight"] for result in results.values()]
    assert not torch.equal(stems[0], stems[1])
    assert not torch.equal(stems[0], stems[2])


@pytest.mark.slow
def test_resuming_a_finished_run_gives_it_again(tmp_path: Path) -> None:
    run_tiny(tmp_path / "run")
    before = outcome(tmp_path / "run")
    events: list[Any] = []
    train, test = digits()
    dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1, observer=events.append)
    assert outcome(tmp_path / "run") == before
    assert not any(isinstance(event, CandidateDone) and event.fresh for event in events)
    assert not any(isinstance(event, EpochDone) for event in events)


def test_resuming_with_another_network_is_refused(tmp_path: Path) -> None:
    run_tiny(tmp_path / "run", finetune=quick_finetune(epochs=0))
    train, test = digits()
    with pytest.raises(RunError, match="another network or other weights"):
        dp.resume(tmp_path / "run", tiny_net(seed=1), train, test, workers=1)


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    run_tiny(tmp_path / "run", finetune=quick_finetune(epochs=0))
    train, test = digits(train=150)
    with pytest.raises(RunError, match="other training data"):
        dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1)


def test_bad_input_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train, _ = digits()
    for wrong, message in [
        ({"model": "resnet20", "train": train}, "torch.nn.Module"),
        ({"model": tiny_net()}, "training data is needed"),
        ({"model": tiny_net(), "train": train, "workers": -1}, "workers must be"),
        ({"model": tiny_net(), "task": AlwaysFails()}, "example_input"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "train": train}, "no convolution"),
    ]:
        with pytest.raises(DeepPruningError, match=message):
            dp.prune(run_dir=folder, **wrong)
    assert not folder.exists()


def test_a_second_process_is_told_that_the_run_is_in_use(tmp_path: Path) -> None:
    run_tiny(tmp_path / "run", finetune=quick_finetune(epochs=0))
    train, test = digits()
    with RunFolder.open(tmp_path / "run"), pytest.raises(RunError, match=str(os.getpid())):
        dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1)


def test_genomes_keep_a_filter_in_every_layer(tmp_path: Path) -> None:
    result = run_tiny(tmp_path / "run", search=quick_search(mutation=0.9), finetune=quick_finetune(epochs=0))
    graph = dp.ChannelGraph(TinyNet(), EXAMPLE)
    for candidate in result.candidates:
        assert np.array_equal(graph.repair(candidate.genome), candidate.genome)
        assert min(kept for kept, _ in graph.widths(candidate.genome).values()) >= 1
