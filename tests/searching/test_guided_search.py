"""Whole runs of the guided search, the default: its promises, and independence from workers and kills."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.errors import InputError
from deeppruning.jobs.result import Result
from deeppruning.runs import RunFolder
from deeppruning.searching.events import CandidateDone, GenerationDone
from deeppruning.searching.task import Task
from search_helpers import EXAMPLE, digits, outcome, quick_guided, tiny_net


def quick_tuning(**options: Any) -> dp.FinetuneConfig:
    """The default fine-tuning, in a moment."""
    return dp.FinetuneConfig(**{"epochs": 1, "batch_size": 50, "crop": 1, "flip": False, **options})


def run_guided(folder: Path, **options: Any) -> Result:
    train, test = digits()
    given = {"search": quick_guided(), "finetune": quick_tuning(), "workers": 1, **options}
    return dp.prune(tiny_net(), train, test, run_dir=folder, **given)


def test_the_best_at_every_cost_are_never_lost_and_events_tell_the_story(tmp_path: Path) -> None:
    events: list[Any] = []
    result = run_guided(tmp_path / "run", search=quick_guided(generations=4), observer=events.append)
    assert len(result.candidates) == 19 == sum(isinstance(event, CandidateDone) for event in events)
    first = result.candidates[0]
    assert (
        first.genome.all()
        and first.evaluated.score == 0.0
        and first.train_error == result.original.train_error
    )
    picks = [event.picks for event in events if isinstance(event, GenerationDone)]
    light = [one["light"].cost for one in picks]
    assert all(later <= 1.01 * before for before, later in pairwise(light))
    shares = [candidate.flops / first.flops for candidate in result.candidates[1:]]
    assert max(shares) <= 0.85
    for solution in result.solutions:
        assert 0.15 <= solution.flops / result.original.flops <= 0.85
        assert torch.equal(dp.load(solution.path, tiny_net())(EXAMPLE), solution.model(EXAMPLE))
        assert sum(p.numel() for p in solution.model.parameters()) == solution.params


@pytest.mark.slow
def test_result_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 2):
        run_guided(tmp_path / str(workers), workers=workers)
    assert outcome(tmp_path / "1") == outcome(tmp_path / "2")


@pytest.mark.slow
def test_history_keeps_scores_operators_and_real_parents(tmp_path: Path) -> None:
    run_guided(tmp_path / "run", search=quick_guided(generations=5))
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        candidates = list(run.history.candidates())
    assert candidates[0].operator == "original"
    assert all(candidate.evaluated.score is not None for candidate in candidates)
    bred = [candidate for candidate in candidates if candidate.parents]
    assert bred and all(parent < candidate.id for candidate in bred for parent in candidate.parents)
    assert {"span", "l1"} <= {candidate.operator for candidate in candidates if not candidate.parents}


def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    run_guided(tmp_path / "whole")
    train, test = digits()
    seen: list[CandidateDone] = []

    def stops(event: Any) -> None:
        if isinstance(event, CandidateDone) and event.fresh:
            seen.append(event)
            if len(seen) == 9:  # two of the second generation
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_guided(tmp_path / "run", observer=stops)
    dp.resume(tmp_path / "run", tiny_net(), train, test, workers=1)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_whole_blocks_go_and_fine_tuning_starts_from_the_refit(tmp_path: Path) -> None:
    result = run_guided(
        tmp_path / "run", search=quick_guided(generations=4, low=0.05), finetune=quick_tuning(epochs=0)
    )
    graph = dp.ChannelGraph(tiny_net(), EXAMPLE, depth=True)
    inner = graph.layer_genes()["inner"]
    assert any(not candidate.genome[inner].any() for candidate in result.candidates)
    weights = result.heavy.model.state_dict()
    kept = graph.prune(result.heavy.genome).state_dict()
    assert weights.keys() == kept.keys()
    assert not torch.equal(weights["linear.weight"], kept["linear.weight"])


class Halves(Task):
    """A user's own: no labels, two inputs of another shape; an error of its own and no score."""

    def __init__(self, teacher: nn.Module, inputs: Tensor | None) -> None:
        self.teacher, self.inputs = teacher.eval(), inputs
        self.judged = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(5))

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        with torch.no_grad():
            return float((model.eval()(self.judged) - self.teacher(self.judged)).square().mean())

    def refit_inputs(self, *, final: bool = False) -> Tensor | None:
        return self.inputs


@pytest.mark.parametrize("given", [True, False])
def test_a_task_of_the_users_own(tmp_path: Path, given: bool) -> None:
    inputs = torch.randn(48, 1, 8, 8, generator=torch.Generator().manual_seed(6)) if given else None
    result = dp.prune(
        tiny_net(),
        run_dir=tmp_path / "run",
        task=Halves(tiny_net(), inputs),
        example_input=EXAMPLE,
        search=quick_guided(offspring=6),
        workers=1,
    )
    assert len(result.candidates) == 21
    assert result.candidates[0].train_error == 0.0
    assert all(
        candidate.status == "ok" and candidate.evaluated.score is None for candidate in result.candidates
    )
    graph = dp.ChannelGraph(tiny_net(), EXAMPLE, depth=True)
    task = Halves(tiny_net(), None)
    as_cut = [task.candidate_error(graph.prune(one.genome), 0) for one in result.candidates[1:]]
    found = [one.train_error for one in result.candidates[1:]]
    assert (np.mean(found) < 0.5 * np.mean(as_cut)) if given else (found == as_cut)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["params", "latency"])
def test_another_second_objective(tmp_path: Path, objective: str) -> None:
    search = quick_guided(objective=objective, generations=2, low=0.05, high=1.0)
    result = run_guided(tmp_path / "run", search=search, finetune=quick_tuning(epochs=0))
    if objective == "params":
        assert all(candidate.cost == candidate.params for candidate in result.candidates)
        assert all(0.05 <= one.params / result.original.params <= 1.0 for one in result.solutions)
    assert all(candidate.status == "ok" for candidate in result.candidates)


@pytest.mark.parametrize("objective", ["flops", "params"])
def test_a_range_that_cannot_be_met_is_refused_before_anything_is_written(
    tmp_path: Path, objective: str
) -> None:
    search = quick_guided(low=0.05, high=0.1, min_channels=5, depth=False, objective=objective)
    with pytest.raises(InputError, match=rf"10% of the original's {objective}, .* cannot be cut below"):
        run_guided(tmp_path / "run", search=search)
    assert not (tmp_path / "run").exists()


def test_the_papers_evaluation_can_judge_a_guided_search(tmp_path: Path) -> None:
    search = quick_guided(evaluation="finetune", eval_epochs=1, generations=2)
    result = run_guided(tmp_path / "run", search=search, finetune=quick_tuning(epochs=0))
    assert len(result.candidates) == 11
    assert all(candidate.evaluated.score is None for candidate in result.candidates)


def test_by_default_wide_layers_keep_multiples_of_eight(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 12, 3), nn.ReLU(), nn.Conv2d(12, 4, 3), nn.Flatten()
    )
    front = dp.search(model.eval(), torch.randn(64, 1, 8, 8), search=quick_guided(), workers=1)
    widths = np.array(
        [front.meter.context.graph.prune(one.genome)[0].out_channels for one in front.candidates]
    )
    inner = np.array(
        [front.meter.context.graph.prune(one.genome)[2].out_channels for one in front.candidates]
    )
    assert set(widths % 8) == {0}
    assert set(inner % 4) == {0}
    assert len(set(widths.tolist())) > 2
