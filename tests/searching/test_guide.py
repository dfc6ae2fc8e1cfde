"""What guides the search: orders by every criterion that applies, and units by how little they are missed."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deeppruning.errors import RunError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.prepare import prepare
from deeppruning.objectives import as_objective
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching import scan as scan_module
from deeppruning.searching.candidate import Context
from deeppruning.searching.guide import Guide, find_guide, order_units
from deeppruning.searching.importance import CRITERIA
from deeppruning.searching.scan import Scanner, look_here, scan
from deeppruning.searching.strategies import known_guide
from deeppruning.searching.task import Task
from search_helpers import EXAMPLE, digits, quick_guided, tiny_net


class Blocks(nn.Module):
    """Three residual blocks; what one adds is times a factor."""

    def __init__(self, factors: tuple[float, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.inner = nn.ModuleList(nn.Conv2d(8, 6, 3, padding=1) for _ in factors)
        self.outer = nn.ModuleList(nn.Conv2d(6, 8, 3, padding=1) for _ in factors)
        self.linear = nn.Linear(8, 10)
        with torch.no_grad():
            for factor, layer in zip(factors, self.outer, strict=True):
                layer.weight.mul_(factor)
                layer.bias.mul_(factor)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = x + outer(torch.relu(inner(x)))
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


def blocks(*factors: float) -> Blocks:
    torch.manual_seed(0)
    return Blocks(factors)


def names_of(graph: ChannelGraph, units: tuple[int, ...]) -> list[str]:
    groups = [group for group in graph.groups if group.prunable]
    return [groups[unit].layers[0] for unit in units]


def losses_of(graph: ChannelGraph, inputs: Tensor, scores: np.ndarray) -> list[list[float]]:
    scanner = Scanner.of(graph, inputs)
    return scan(graph, scores, lambda genomes: [scanner.loss(genome) for genome in genomes])


def units_of(graph: ChannelGraph, inputs: Tensor) -> tuple[int, ...]:
    scores = np.zeros(graph.num_genes)
    return order_units(graph, losses_of(graph, inputs, scores), scores)


def context_of(model: nn.Module, **options) -> Context:
    train, test = digits()
    return prepare(model, train, test, search=quick_guided(**options), measure=False).context


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_block_that_adds_nothing_comes_first(silent):
    factors = [3.0, 3.0, 3.0]
    factors[silent] = 0.0
    context = context_of(blocks(*factors))
    found = find_guide(context)
    assert names_of(context.graph, found.units)[0] == f"inner.{silent}"
    assert len(found.units) == 3


def test_units_are_ordered_by_how_much_they_add():
    graph = ChannelGraph(blocks(0.3, 8.0, 1.5), EXAMPLE, depth=True)
    torch.manual_seed(1)
    units = units_of(graph, torch.randn(64, 1, 8, 8))
    assert names_of(graph, units) == ["inner.0", "inner.2", "inner.1"]


def test_without_inputs_the_scores_of_their_filters_tell():
    graph = ChannelGraph(blocks(1.0, 1.0, 1.0), EXAMPLE, depth=True)
    scores = np.zeros(graph.num_genes)
    for number, total in enumerate((5.0, 1.0, 3.0)):
        scores[graph.layer_genes()[f"inner.{number}"][0]] = total
    assert names_of(graph, order_units(graph, [], scores)) == ["inner.1", "inner.2", "inner.0"]


def test_a_unit_without_which_nothing_works_comes_last(monkeypatch):
    graph = ChannelGraph(blocks(0.3, 1.5, 0.8), EXAMPLE, depth=True)
    real = scan_module.refit_in_place

    def breaks_without_the_first(reference, graph, genome, thin):
        real(reference, graph, genome, thin)
        if not genome[graph.layer_genes()["inner.0"]].any():
            with torch.no_grad():
                thin.linear.weight.fill_(torch.nan)

    monkeypatch.setattr(scan_module, "refit_in_place", breaks_without_the_first)
    units = units_of(graph, torch.randn(64, 1, 8, 8))
    assert names_of(graph, units)[-1] == "inner.0"


def test_without_depth_there_are_no_units():
    context = context_of(blocks(1.0, 1.0), depth=False)
    assert find_guide(context).units == ()


def test_every_criterion_but_chance_is_an_order_the_best_two_first():
    guide = find_guide(context_of(tiny_net()))
    assert list(guide.scores)[:2] == ["span", "l1"]
    assert set(guide.scores) == set(CRITERIA) - {"random"}
    assert all(values.shape == (14,) and np.isfinite(values).all() for values in guide.scores.values())


class Judged(Task):
    """No images and, unless they are given, no inputs."""

    def __init__(self, inputs: Tensor | None = None) -> None:
        self.inputs = inputs

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        return 0.5

    def refit_inputs(self, *, final: bool = False) -> Tensor | None:
        return self.inputs


@pytest.mark.parametrize(("inputs", "orders"), [(None, {"l1"}), (torch.randn(40, 1, 8, 8), {"span", "l1"})])
def test_a_task_of_the_users_own_has_the_orders_that_its_inputs_allow(inputs, orders):
    job = prepare(
        tiny_net(), task=Judged(inputs), example_input=EXAMPLE, search=quick_guided(), measure=False
    )
    guide = find_guide(job.context)
    assert set(guide.scores) == orders and len(guide.units) == 1


def test_what_is_written_down_is_what_is_used(tmp_path):
    context = context_of(tiny_net())
    history = History(tmp_path / "history.sqlite")
    found = known_guide(context, quick_guided(), history, look_here(context))
    read = Guide.from_table(json.loads(json.dumps(found.to_table())))
    changed = context_of(tiny_net(seed=1))
    again = known_guide(changed, quick_guided(), history, look_here(changed))  # kept, not found anew
    for other in (read, again):
        assert other.units == found.units and other.scores.keys() == found.scores.keys()
        assert all(np.array_equal(other.scores[name], found.scores[name]) for name in found.scores)
    history.set_fact(facts.GUIDE, {"scores": {"l1": ["a"]}, "units": []})
    with pytest.raises(RunError, match="holds no whole guide of the search"):
        known_guide(context, quick_guided(), history, look_here(context))


def test_the_space_is_priced_by_the_objective_or_by_flops():
    graph = ChannelGraph(tiny_net(), EXAMPLE, depth=True, round_to=2)
    guide = Guide({"l1": np.ones(graph.num_genes)}, (1,))
    half = np.arange(graph.num_genes) % 2 == 0
    wanted = {"flops": graph.flops, "params": graph.params, lambda network: 1.0: graph.flops}
    for objective, figure in wanted.items():
        space = guide.space(graph, objective=as_objective(objective))
        assert space.price(half[None]).tolist() == [figure(half)]
        assert (set(space.multiples.tolist()), space.units) == ({2}, (1,))
        assert space.sizes.tolist() == [len(group.genes) for group in graph.groups if group.prunable]


def test_a_scan_has_a_row_for_each_group_and_loses_more_the_more_is_gone():
    graph = ChannelGraph(blocks(20.0, 0.0), EXAMPLE, depth=True)
    torch.manual_seed(1)
    rows = losses_of(graph, torch.randn(80, 1, 8, 8), -np.arange(float(graph.num_genes)))
    groups = [group for group in graph.groups if group.prunable]
    assert len(rows) == len(groups) and all(len(row) == 4 for row in rows)
    by_layer = {group.layers[0]: row for group, row in zip(groups, rows, strict=True)}
    assert by_layer["inner.1"] == pytest.approx([0.0] * 4, abs=1e-6)  # what it adds is times zero
    assert by_layer["inner.0"][3] > by_layer["inner.0"][0] > 1e-4
    assert by_layer["stem"][3] == np.inf  # it cannot go
