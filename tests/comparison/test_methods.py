"""Every method on one network of each family, at the FLOPs asked for."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deeppruning.comparison import METHODS, USUAL, choose_methods, usable_methods
from deeppruning.comparison.problem import Problem, Target
from deeppruning.errors import InputError
from deeppruning.models import create_model
from deeppruning.searching.importance.budget import TOLERANCE
from deeppruning.system.commands import how_to_install
from rival_helpers import make_problem
from search_helpers import digits, quick_search

SHARES = (0.7, 0.3)
# Of 23 that a run evaluates; the genetic algorithm divides them among two targets.
EVALUATIONS = {"ga": 22, "kgea": 23, "nsga2": 23, "es-plus": 23, "es-comma": 23, "random-search": 23}
# What refit adds is the same for every ranking, and test_widths.py asks the searches over widths.
LEFT_OUT = [
    "guided",
    "random-widths",
    "nsga2-widths",
    *(name for name in METHODS if name.endswith("+refit") and name != "l1+refit"),
]
ASKED = [pytest.param(name, marks=[pytest.mark.slow] * (name in LEFT_OUT)) for name in METHODS]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("vgg16", "densenet50")]


@pytest.fixture(scope="module", params=["resnet20", *SLOW])
def problem(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Problem:
    torch.manual_seed(0)
    model = create_model(request.param, num_classes=10, in_channels=1, image_size=8)
    search = quick_search(offspring=3, generations=2, sample=40, evaluation="recalibrate")
    folder = tmp_path_factory.mktemp(request.param)
    return make_problem(model, folder, data=digits(train=40, test=20), search=search)


@pytest.mark.parametrize("name", ASKED)
def test_networks_have_the_flops_asked_for_and_run(problem: Problem, name: str) -> None:
    graph = problem.graph
    full = graph.flops(graph.full_genome())
    targets = [Target(str(share), round(share * full)) for share in SHARES]
    networks = METHODS[name].propose(problem, targets)
    assert len(networks) == len(targets)
    for target, network in zip(targets, networks, strict=True):
        assert abs(graph.flops(network.genome) - target.flops) <= TOLERANCE * target.flops
        thin = graph.prune(network.genome)
        if network.weights is not None:
            thin.load_state_dict(network.weights)
        assert thin(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", [name for name in METHODS if name.endswith("-global")])
def test_global_and_uniform_share_the_cut_differently(problem: Problem, name: str) -> None:
    graph = problem.graph
    target = Target("half", graph.flops(graph.full_genome()) // 2)
    uniform, everywhere = (
        METHODS[each].propose(problem, [target])[0].genome for each in (name.removesuffix("-global"), name)
    )
    kept = [
        [genome[list(group.genes)].mean() for group in graph.groups if group.prunable]
        for genome in (uniform, everywhere)
    ]
    widest = max(1 / len(group.genes) for group in graph.groups if group.prunable)
    assert np.ptp(kept[0]) <= 2 * widest  # no layer is more than a filter or two from the others
    assert np.ptp(kept[1]) > np.ptp(kept[0]) or name == "random-global"


def test_searches_spend_the_same_number_of_evaluations(tmp_path: Path) -> None:
    for name, expected in EVALUATIONS.items():
        (tmp_path / name).mkdir()
        problem = make_problem(
            nn.Sequential(
                nn.Conv2d(1, 40, 3), nn.ReLU(), nn.Conv2d(40, 40, 3), nn.Flatten(), nn.Linear(640, 10)
            ),
            tmp_path / name,
            data=digits(train=40, test=20),
            search=quick_search(offspring=5, generations=4, sample=20, evaluation="recalibrate"),
        )
        full = problem.graph.flops(problem.graph.full_genome())
        METHODS[name].propose(problem, [Target(str(share), round(share * full)) for share in SHARES])
        assert len(problem.history.evaluations()) == expected, name


def test_every_method_says_where_it_comes_from() -> None:
    for name, method in METHODS.items():
        criterion = getattr(method, "criterion", method)
        assert name == method.name
        assert len(type(criterion).__doc__ or "") > 80


def test_choosing_methods() -> None:
    assert [method.name for method in choose_methods(USUAL)] == list(USUAL)
    assert {method.needs for method in choose_methods(USUAL)} == {None}
    assert [method.name for method in choose_methods("thinet, l1")] == ["l1", "thinet"]
    assert [method.name for method in choose_methods("all")] == list(METHODS)
    with pytest.raises(InputError, match=r"'thinnet'.*thinet"):
        choose_methods("l1,thinnet")
    with pytest.raises(InputError, match="no method"):
        choose_methods([])


def test_methods_that_cannot_run_here_are_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_methods(USUAL) == (list(USUAL), "")
    monkeypatch.setitem(sys.modules, "pymoo", None)  # what Python does for a package that is absent
    names, note = usable_methods("all")
    lacking = [name for name, method in METHODS.items() if method.needs == "pymoo"]
    assert names == [name for name in METHODS if name not in lacking] and "nsga2" in lacking
    assert note == f"left out: {', '.join(lacking)} need pymoo: {how_to_install('pymoo')}"
    assert usable_methods("l1,nsga2") == (
        ["l1"],
        f"left out: nsga2 needs pymoo: {how_to_install('pymoo')}",
    )
    with pytest.raises(InputError, match=r"no method that is named can run here: nsga2 needs .* -m pip"):
        usable_methods("nsga2")
