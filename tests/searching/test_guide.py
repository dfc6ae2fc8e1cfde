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
from deeppruning.searching.candidate import Context
from deeppruning.searching.guide import (
    Guide,
    find_orders,
    gather_evidence,
    load_or_make_guide,
    order_units,
    scanned_guide,
)
from deeppruning.searching.importance import CRITERIA, Evidence
from deeppruning.searching.scan import LEVELS, Look, Scanner, scan, scan_loss
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
    evidence = Evidence(graph, graph.prune(graph.full_genome()), inputs=inputs)
    return scan(evidence, scores, lambda cuts: [scanner.loss(cut) for cut in cuts])


def units_of(graph: ChannelGraph, inputs: Tensor) -> tuple[int, ...]:
    scores = np.zeros(graph.num_genes)
    return order_units(graph, losses_of(graph, inputs, scores), scores)


def context_of(model: nn.Module, **options) -> Context:
    train, test = digits()
    return prepare(model, train, test, search=quick_guided(**options), measure=False).context


def look_here(context: Context) -> Look:
    return lambda cuts: [scan_loss(context, cut) for cut in cuts]


def guide_of(context: Context) -> Guide:
    evidence = gather_evidence(context)
    return scanned_guide(evidence, find_orders(evidence), look_here(context))


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_block_that_adds_nothing_comes_first(silent):
    factors = [3.0, 3.0, 3.0]
    factors[silent] = 0.0
    context = context_of(blocks(*factors))
    found = guide_of(context)
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


def test_a_unit_without_which_nothing_works_comes_last():
    graph = ChannelGraph(blocks(0.3, 1.5, 0.8), EXAMPLE, depth=True)
    inputs, groups = torch.randn(64, 1, 8, 8), [group for group in graph.groups if group.prunable]
    losses = losses_of(graph, inputs, np.zeros(graph.num_genes))
    first = next(number for number, group in enumerate(groups) if group.layers[0] == "inner.0")
    losses[first][-1] = np.inf  # as a scan says of outputs that are not finite
    assert names_of(graph, order_units(graph, losses, np.zeros(graph.num_genes)))[-1] == "inner.0"


def test_without_depth_there_are_no_units():
    context = context_of(blocks(1.0, 1.0), depth=False)
    assert guide_of(context).units == ()


def test_every_criterion_but_chance_is_an_order_the_best_two_first():
    guide = guide_of(context_of(tiny_net()))
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
    guide = guide_of(job.context)
    assert set(guide.scores) == orders and len(guide.units) == 1


def test_what_is_written_down_is_what_is_used(tmp_path):
    context = context_of(tiny_net())
    history = History(tmp_path / "history.sqlite")
    found = load_or_make_guide(context, history, look_here(context), 1)
    read = Guide.from_table(json.loads(json.dumps(found.to_table())))
    changed = context_of(tiny_net(seed=1))
    again = load_or_make_guide(changed, history, look_here(changed), 1)  # kept, not found anew
    for other in (read, again):
        assert other.units == found.units and other.scores.keys() == found.scores.keys()
        assert all(np.array_equal(other.scores[name], found.scores[name]) for name in found.scores)
    history.set_fact(facts.GUIDE, {"scores": {"l1": ["a"]}, "units": []})
    with pytest.raises(RunError, match="holds no whole guide of the search"):
        load_or_make_guide(context, history, look_here(context), 1)


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
    assert len(rows) == len(groups) and all(len(row) == len(LEVELS) + 1 for row in rows)
    by_layer = {group.layers[0]: row for group, row in zip(groups, rows, strict=True)}
    assert by_layer["inner.1"] == pytest.approx(
        [0.0] * (len(LEVELS) + 1), abs=1e-6
    )  # what it adds is times zero
    assert max(by_layer["inner.0"]) == by_layer["inner.0"][-1] > by_layer["inner.0"][0] > 1e-5
    assert by_layer["stem"][-1] == np.inf  # it cannot go
