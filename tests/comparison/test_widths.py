"""Searches over widths: judged by refit, brought to the FLOPs asked for, the same after a stop."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.backends import InProcessBackend
from deeppruning.comparison import METHODS, Comparison, Network
from deeppruning.comparison.methods.searching import Field, RandomWidths
from deeppruning.comparison.problem import Clock, Problem, Target, call
from deeppruning.comparison.run import read_proposal
from deeppruning.runs import RunFolder
from deeppruning.runs.history import History
from deeppruning.searching.importance.orders import TOLERANCE
from deeppruning.searching.strategies import guided_strategy
from rival_helpers import make_problem
from search_helpers import digits, quick_finetune, quick_guided, tiny_net

NAMES = ["guided", "random-widths"]
SHARES = (0.7, 0.3)


class Blocks(nn.Module):
    """Four residual blocks, each of which may go."""

    def __init__(self, width: int = 16, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(width, 16, 3, padding=1) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Conv2d(16, width, 3, padding=1) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(torch.relu(first(x)))
        out: Tensor = self.head(x.mean((2, 3)))
        return out


@cache
def understood(**options: Any) -> Problem:
    """The network understood once, however many tests ask."""
    torch.manual_seed(0)
    search = quick_guided(**{"offspring": 6, "generations": 2, "sample": 40, "round_to": 1, **options})
    with TemporaryDirectory() as folder:
        return make_problem(Blocks(), Path(folder), data=digits(train=60, test=30), search=search)


def make(folder: Path, **options: Any) -> Problem:
    """The problem with nothing evaluated."""
    folder.mkdir(exist_ok=True)
    return replace(understood(**options), history=History(folder / "history.sqlite"), clock=Clock())


def targets_of(problem: Problem) -> list[Target]:
    full = problem.graph.flops(problem.graph.full_genome())
    return [Target(str(share), round(share * full)) for share in SHARES]


Proposed = tuple[Problem, list[Network]]


QUICK = [pytest.param(name, marks=[pytest.mark.slow] * (name != "guided")) for name in NAMES]


@pytest.fixture(scope="module", params=QUICK)
def proposed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Proposed:
    """What each method proposes, and the problem it was asked about."""
    problem = make(tmp_path_factory.mktemp(request.param))
    return problem, METHODS[request.param].propose(problem, targets_of(problem))


def test_candidates_are_judged_by_refit_and_targets_met(proposed: Proposed) -> None:
    problem, networks = proposed
    graph = problem.graph
    for network, target in zip(networks, targets_of(problem), strict=True):
        assert abs(graph.flops(network.genome) / target.flops - 1) <= TOLERANCE
        assert network.weights is not None
        assert np.array_equal(graph.repair(network.genome[None])[0], network.genome)
        graph.prune(network.genome).load_state_dict(network.weights)
    found = problem.history.evaluations()
    assert len(found) == problem.search.evaluations == 15
    assert all(row.score is not None for row in found)  # what only a refit is judged by
    shares = np.array([row.flops for row in found]) / graph.flops(graph.full_genome())
    assert np.ptp(shares) > 0.4


@pytest.mark.slow
def test_asked_again_it_proposes_the_same_and_evaluates_nothing(
    request: pytest.FixtureRequest, proposed: Proposed, tmp_path: Path
) -> None:
    problem, first = proposed
    name = request.node.callspec.params["proposed"]
    evaluated = len(problem.history.evaluations())

    class Refuses:
        def map(self, items: Any) -> Any:
            listed = list(items)
            assert not any(work.function.__name__ == "evaluate_candidate" for _, work in listed)
            return InProcessBackend().open(call, problem.contexts).map(listed)

    again = replace(problem, workers=Refuses(), clock=Clock())
    second = METHODS[name].propose(again, targets_of(problem))
    other = make(tmp_path)
    third = METHODS[name].propose(other, targets_of(other))
    assert len(problem.history.evaluations()) == evaluated
    for one, *others in zip(first, second, third, strict=True):
        for repeated in others:
            assert np.array_equal(one.genome, repeated.genome)
            assert one.weights is not None
            assert repeated.weights is not None
            assert all(torch.equal(value, repeated.weights[key]) for key, value in one.weights.items())


@pytest.mark.slow
def test_guided_is_the_search_of_a_run(tmp_path: Path) -> None:
    problem = make(tmp_path, generations=1)
    METHODS["guided"].propose(problem, targets_of(problem))
    field = Field.of(problem)
    strategy = guided_strategy(problem.contexts.refitting, problem.search, field.guide)
    known = {row.genome.tobytes(): row for row in problem.history.evaluations()}
    while not strategy.done:
        rows = [known[genome.tobytes()] for genome in strategy.ask()]
        strategy.tell(np.array([row.objectives for row in rows]), np.array([row.judged for row in rows]))
    asked = {one.genome.tobytes() for one in strategy.population}
    assert asked and asked <= known.keys()


def test_a_unit_comes_back_only_where_the_rest_is_too_small(tmp_path: Path) -> None:
    field = Field.of(make(tmp_path))
    space, graph = field.space, field.problem.graph
    assert len(space.units) == 4
    for count in range(5):
        genome = space.uniform(0.05 * field.whole, "l1", space.units[:count])
        most = graph.flops(space.uniform(field.whole, "l1", space.units[:count]))
        for share in (0.15, 0.5, 0.9):
            flops = round(share * field.whole)
            met = field.brought_to(genome, flops)
            assert abs(graph.flops(met) / flops - 1) <= 2 * TOLERANCE  # filters are few here
            if flops < 0.95 * most:
                assert space.gone(met) == space.gone(genome)
    near = space.uniform(0.5 * field.whole, "l1")
    assert field.brought_to(near, int(graph.flops(near) * 1.01)) is near


@pytest.mark.slow
def test_random_widths_leave_units_out(tmp_path: Path) -> None:
    field = Field.of(make(tmp_path))
    generator = np.random.default_rng(3)
    gone = sum(len(field.space.gone(RandomWidths().draw(field, generator))) for _ in range(20))
    assert 5 < gone < 60


@pytest.mark.slow
def test_without_depth_and_whatever_the_evaluation_of_the_comparison(tmp_path: Path) -> None:
    problem = make(tmp_path, depth=False, evaluation="recalibrate", generations=1)
    METHODS["random-widths"].propose(problem, targets_of(problem))
    graph = problem.graph
    assert problem.task.search.evaluation == "recalibrate"
    for row in problem.history.evaluations():
        assert row.score is not None
        assert all(row.genome[list(group.genes)].any() for group in graph.groups if group.prunable)


# -- whole comparisons


def compare(folder: Path | None = None, **options: Any) -> Comparison:
    train, test = digits()
    return dp.compare(tiny_net(), train, test, run_dir=folder, **{"workers": 1, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "guided"
    train, test = digits()
    options: dict[str, Any] = {"search": quick_guided(), "finetune": quick_finetune(epochs=1)}
    dp.prune(tiny_net(), train, test, run_dir=folder, workers=1, **options)
    return folder


@pytest.mark.slow
def test_matched_to_a_guided_run(run: Path) -> None:
    found = compare(match=run, methods="guided,l1,l1+refit,es-plus")
    with RunFolder.open(run, read_only=True) as opened:
        facts, evaluated = opened.history.facts(), opened.history.evaluations()
    for row in found.rows:
        if row.method == "deeppruninges":
            # The same cut, the same refit, the same seed: the comparison's training is the run's.
            assert row.error_after == facts[f"solution/{row.target}"]["test_error"]
    proposal = read_proposal(run / "compare" / "proposals" / "deeppruninges-seed-0.safetensors")
    assert proposal is not None
    assert all(network.weights is not None for network in proposal.networks)
    searches = {search.method: search for search in found.searches}
    assert {name: one.evaluation for name, one in searches.items()} == {
        "guided": "refit",
        "es-plus": "finetune",
    }
    assert searches["guided"].evaluations == len(evaluated)
    with History(run / "compare" / "searches" / "guided-seed-0.sqlite", read_only=True) as history:
        taken = {
            row.genome.tobytes(): (row.error, row.score, row.finished_at) for row in history.evaluations()
        }
    assert taken == {row.genome.tobytes(): (row.error, row.score, row.finished_at) for row in evaluated}
    assert searches["guided"].seconds >= sum(row.seconds for row in evaluated)
    assert 0 < searches["guided"].hypervolume < 1
    assert Comparison.from_table(json.loads(json.dumps(found.to_table()))).searches == found.searches


@pytest.mark.slow  # test_comparing.py stops the others
def test_stopped_anywhere_it_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    def rows(folder: Path, stops: int) -> list[Any]:
        events = 0

        def observer(event: Any) -> None:
            nonlocal events
            events += 1
            if events > stops >= 0:
                raise KeyboardInterrupt

        found = compare(
            folder,
            shares=(0.6,),
            methods="l1+refit,guided,random-widths",
            search=quick_guided(generations=1, sample=40),
            finetune=quick_finetune(epochs=1),
            observer=observer,
        ).rows
        return [(row.method, row.target, row.flops, row.error_before, row.error_after) for row in found]

    undisturbed = rows(tmp_path / "a", -1)
    for stops in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            rows(tmp_path / "b", stops)
    assert rows(tmp_path / "b", -1) == undisturbed
