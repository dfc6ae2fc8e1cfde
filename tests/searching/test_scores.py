"""Every criterion and every formula of a method against a case worked out by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deeppruning.comparison import METHODS
from deeppruning.comparison.methods.auto_balanced import TwoSigned, balance_factors
from deeppruning.comparison.methods.ranking import L1Sensitivity
from deeppruning.comparison.methods.searching import best_row
from deeppruning.comparison.problem import Problem, Target
from deeppruning.comparison.results import hypervolume
from deeppruning.data.images import ImageSet
from deeppruning.graph import ChannelGraph
from deeppruning.searching.importance import global_order, meet_flops, uniform_order
from deeppruning.searching.importance.criteria import (
    APoZ,
    Entropy,
    L1Norm,
    MeanActivation,
    Random,
    filter_norms,
)
from deeppruning.searching.importance.evidence import gather_activations
from rival_helpers import make_problem
from search_helpers import quick_search, tiny_net


class Pointwise(nn.Module):
    """Two 1x1 convolutions whose answers can be worked out in the head."""

    def __init__(self, first: list[float], second: list[float]) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, len(first), 1, bias=False)
        self.second = nn.Conv2d(len(first), 2, 1, bias=False)
        self.first.weight.data = torch.tensor(first).view(-1, 1, 1, 1)
        self.second.weight.data = torch.tensor([second, second]).view(2, -1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.relu(self.first(x))).mean((2, 3))
        return out


# Four images of one pixel: 1, 2, -1 and 0, two of either class.
IMAGES = ImageSet(
    torch.tensor([1.0, 2.0, -1.0, 0.0]).view(4, 1, 1, 1), torch.tensor([0, 0, 1, 1]), ("a", "b")
)


def pointwise_problem(tmp_path: Path, first: list[float], second: list[float]) -> Problem:
    model = Pointwise(first, second)
    return make_problem(model, tmp_path, data=(IMAGES, IMAGES), search=quick_search(sample=4))


def test_l1_is_the_sum_of_absolute_weights(tmp_path: Path) -> None:
    problem = pointwise_problem(tmp_path, [-3.0, 1.0, 0.5], [1.0, 1.0, 1.0])
    assert L1Norm().scores(problem.evidence).tolist() == [3.0, 1.0, 0.5]


def test_l1_of_tied_filters_is_that_of_all_of_them(tmp_path: Path) -> None:
    net = tiny_net()
    problem = make_problem(net, tmp_path)
    tied = next(group for group in problem.graph.groups if len(group.layers) == 2)
    expected = (net.stem.weight[2].abs().sum() + net.outer.weight[2].abs().sum()).item()
    assert L1Norm().scores(problem.evidence)[tied.genes[2]] == pytest.approx(expected)


def test_l1_of_a_grouped_transposed_convolution() -> None:
    layer = nn.ConvTranspose2d(4, 6, 1, groups=2, bias=False)
    layer.weight.data = torch.arange(12.0).view(4, 3, 1, 1)
    net = nn.Sequential(nn.Conv2d(1, 4, 1), layer, nn.Conv2d(6, 2, 1))
    filters = ChannelGraph(net, torch.zeros(1, 1, 4, 4)).filters(net)
    # Filter 0 reads inputs 0 and 1 of the first group: 0 + 3; filter 3 those of the second: 6 + 9.
    assert filter_norms(filters["1"]).tolist() == [3.0, 5.0, 7.0, 15.0, 17.0, 19.0]


def test_layers_that_store_their_weights_in_other_ways(tmp_path: Path) -> None:
    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 6, 1))
    up = nn.ConvTranspose2d(6, 8, 2, stride=2, groups=2)
    net = nn.Sequential(normed, up, nn.Conv2d(8, 4, 3), nn.Flatten(), nn.LazyLinear(10))
    net(torch.zeros(1, 1, 8, 8))
    problem = make_problem(net, tmp_path)
    assert filter_norms(problem.graph.filters(net)["0"]).tolist() == pytest.approx(
        normed.weight.detach().abs().flatten().tolist()
    )
    assert len(problem.graph.layer_genes()["1"]) == 8  # one for each filter, though two groups share them
    target = Target("half", problem.graph.flops(problem.graph.full_genome()) // 2)
    for name in ("l1", "apoz", "auto-balanced", "l1-sensitivity"):
        (network,) = METHODS[name].propose(problem, [target])
        thin = problem.graph.prune(network.genome)
        thin.load_state_dict(network.weights or thin.state_dict())
        assert problem.graph.flops(network.genome) < 2 * target.flops, name
        assert thin(torch.zeros(1, 1, 8, 8)).shape == (1, 10), name


def test_mean_activation_apoz_and_entropy(tmp_path: Path) -> None:
    problem = pointwise_problem(tmp_path, [1.0, -1.0, 0.0], [1.0, 1.0, 1.0])
    # Rectified answers to 1, 2, -1, 0: filter 0 gives 1 2 0 0, filter 1 gives 0 0 1 0, filter 2 nothing.
    assert MeanActivation().scores(problem.evidence).tolist() == [0.75, 0.25, 0.0]
    assert APoZ().scores(problem.evidence).tolist() == [0.5, 0.25, 0.0]
    halves_and_quarters = 0.5 * math.log(2) + 2 * 0.25 * math.log(4)
    three_to_one = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert Entropy().scores(problem.evidence) == pytest.approx([halves_and_quarters, three_to_one, 0.0])


def test_activations_are_seen_behind_the_norm() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2)).eval()
    net[0].weight.data.fill_(1.0)
    net[0].bias.data.zero_()
    net[1].bias.data = torch.tensor([0.0, 5.0])
    found = gather_activations(ChannelGraph(net, torch.zeros(1, 1, 1, 1)), IMAGES)
    assert found.mean == pytest.approx([0.75, 5.5], rel=1e-4)
    assert found.zeros.tolist() == [0.5, 0.0]


def test_random_follows_the_seed(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first, again = (
        Random().scores(make_problem(tiny_net(), tmp_path / name).evidence) for name in ("a", "b")
    )
    other = Random().scores(make_problem(tiny_net(), tmp_path / "c", seed=1).evidence)
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_orders_by_layer_and_everywhere() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Conv2d(2, 4, 1), nn.Conv2d(4, 1, 1))
    graph = ChannelGraph(net, torch.zeros(1, 1, 2, 2))
    scores = np.array([3.0, 1.0, 50.0, 40.0, 5.0, 25.0])
    # Ranks within layers: 1/2 and 2/2; 1/4 to 4/4.
    assert uniform_order(graph, scores) == [4, 1, 5, 3, 0, 2]
    # Over the means 2 and 30: 1.5, 0.5; 1.67, 1.33, 0.17, 0.83.
    assert global_order(graph, scores) == [4, 1, 5, 3, 0, 2]
    assert global_order(graph, np.array([2.0, 2.0, 9.0, 1.0, 1.0, 1.0])) == [3, 4, 5, 0, 1, 2]


def test_sensitivity_spares_the_layer_that_matters(tmp_path: Path) -> None:
    problem = pointwise_problem(tmp_path, [1.0, 0.9, 0.1, 0.2], [1.0, 1.0, 0.0, 0.0])
    order = L1Sensitivity().order(problem)
    assert sorted(order) == [0, 1, 2, 3]
    assert order[:2] == [2, 3]


def test_balance_factors_and_their_balance() -> None:
    net = Pointwise([4.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    graph = ChannelGraph(net, torch.zeros(1, 1, 1, 1))
    factors = balance_factors(graph, np.array([4.0, 2.0, 1.0]), np.array([True, False, False]))
    # The threshold is 2: pulls of 1 and 1 + ln 2, a push of 1 + ln 2.
    assert factors == pytest.approx([-1 - math.log(2), 1.0, 1 + math.log(2)])
    penalty = TwoSigned.of(graph, net, factors)(net)
    penalty.backward()
    pull, push = 1 * 2**2 + (1 + math.log(2)) * 1**2, (1 + math.log(2)) * 4**2
    expected = [-(1 + math.log(2)) * 4 * pull / push, 1.0 * 2, (1 + math.log(2)) * 1]
    assert float(penalty.detach()) == pytest.approx(0.0, abs=1e-6)
    gradient = net.first.weight.grad
    assert gradient is not None
    assert gradient.flatten().tolist() == pytest.approx([2 * 0.05 * value for value in expected], rel=1e-5)


def test_what_is_pushed_does_not_grow_without_end() -> None:
    net = Pointwise([4.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    graph = ChannelGraph(net, torch.zeros(1, 1, 1, 1))
    penalty = TwoSigned.of(
        graph, net, balance_factors(graph, np.array([4.0, 2.0, 1.0]), np.array([1, 0, 0]) > 0)
    )
    optimizer = torch.optim.SGD([net.first.weight], lr=0.1)
    for _ in range(2000):
        optimizer.zero_grad()
        penalty(net).backward()
        optimizer.step()
    stays, goes, goes_too = net.first.weight.abs().flatten().tolist()
    assert 4.0 < stays < 6.0
    assert max(goes, goes_too) < 1e-3


def test_best_within_the_flops_asked_for() -> None:
    objectives = np.array([[0.05, 100.0], [0.2, 60.0], [0.2, 55.0], [0.6, 20.0]])
    assert best_row(objectives, 60.0) == 1
    assert best_row(objectives, 56.0) == 2
    assert best_row(objectives, 10.0) == 3


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_hypervolume_against_counting(points: list[tuple[float, float]]) -> None:
    cells = (np.arange(200) + 0.5) / 200
    errors, costs = np.meshgrid(cells, cells)
    covered = np.zeros_like(errors, dtype=bool)
    for error, cost in points:
        covered |= (errors >= error) & (costs >= cost)
    assert hypervolume(points) == pytest.approx(covered.mean(), abs=0.02)
    assert hypervolume([*points, (0.5, 0.5)]) >= hypervolume(points)


@pytest.fixture(scope="module")
def chain() -> ChannelGraph:
    net = nn.Sequential(nn.Conv2d(1, 30, 3, padding=1), nn.Conv2d(30, 30, 3, padding=1), nn.Conv2d(30, 1, 1))
    return ChannelGraph(net, torch.zeros(1, 1, 4, 4))


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 1.0))
def test_flops_are_met_by_going_one_way_only(chain: ChannelGraph, seed: int, share: float) -> None:
    graph = chain
    generator = np.random.default_rng(seed)
    start = graph.repair(generator.random(graph.num_genes) < generator.random())
    asked = share * graph.flops(graph.full_genome())
    genome = meet_flops(graph, start, generator.permutation(graph.num_genes).tolist(), asked)
    assert abs(graph.flops(genome) - asked) <= 0.02 * asked + 450  # one filter of the last layers at most
    changed = start ^ genome
    assert not changed.any() or start[changed].all() == (graph.flops(start) > asked)
