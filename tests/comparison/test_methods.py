"""Every method on one network of each family, at the FLOPs asked for."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from deeppruning.comparison import METHODS, USUAL, choose_methods
from deeppruning.comparison.problem import Problem, Target
from deeppruning.errors import InputError
from deeppruning.models import create_model
from deeppruning.searching.importance import CRITERIA, genome_by
from deeppruning.searching.importance.orders import TOLERANCE
from rival_helpers import make_problem
from search_helpers import digits, quick_search

SHARES = (0.7, 0.3)
SEARCHES = ("es-plus", "es-comma", "random-search")
# What refit adds is the same for every ranking, and test_widths.py asks the searches over widths.
LEFT_OUT = [
    "guided",
    "random-widths",
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


@pytest.mark.parametrize("name", [name for name in CRITERIA if name != "random"])
def test_everywhere_and_uniform_share_the_cut_differently(problem: Problem, name: str) -> None:
    graph = problem.graph
    half = 0.5 * graph.flops(graph.full_genome())
    shares = []
    for everywhere in (False, True):
        genome = genome_by(name, problem.evidence, flops=half, everywhere=everywhere)
        shares.append([genome[list(group.genes)].mean() for group in graph.groups if group.prunable])
    widest = max(1 / len(group.genes) for group in graph.groups if group.prunable)
    assert np.ptp(shares[0]) <= 2 * widest  # no layer is more than a filter or two from the others
    assert np.ptp(shares[1]) > np.ptp(shares[0])


def test_searches_spend_the_same_number_of_evaluations(tmp_path: Path) -> None:
    for name in SEARCHES:
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
        assert len(problem.history.evaluations()) == 23, name


def test_every_method_says_where_it_comes_from() -> None:
    for name, method in METHODS.items():
        criterion = getattr(method, "criterion", method)
        assert name == method.name
        assert len(type(criterion).__doc__ or "") > 80


def test_choosing_methods() -> None:
    assert [method.name for method in choose_methods(USUAL)] == list(USUAL)
    assert [method.name for method in choose_methods("guided, l1")] == ["l1", "guided"]
    assert [method.name for method in choose_methods("all")] == list(METHODS)
    with pytest.raises(InputError, match=r"'guide'.*guided"):
        choose_methods("l1,guide")
    with pytest.raises(InputError, match="no method"):
        choose_methods([])
