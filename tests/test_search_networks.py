"""Whole runs of networks of unusual make: weights without a layer of their own, other precisions."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import deeppruning as dp
from deeppruning.report.data import collect
from deeppruning.report.page import write_report
from deeppruning.rivals import METHODS
from deeppruning.rivals.problem import Target
from deeppruning.search.result import Result
from graph_networks import NETWORKS
from rival_helpers import make_problem
from search_helpers import digits, quick_finetune, quick_search


def run_quickly(folder: Path, model: nn.Module, **options: Any) -> Result:
    train, test = digits(train=40, test=40)
    search = quick_search(**{"offspring": 2, "generations": 1, "sample": 20, **options})
    return dp.prune(
        model, train, test, run_dir=folder, search=search, finetune=quick_finetune(epochs=1), workers=1
    )


class Bare(nn.Module):
    """Convolutions whose weights are parameters of the network itself and of a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 1, 3, 3))
        self.part = nn.ParameterDict({"kernel": torch.randn(6, 4, 3, 3) / 6})
        self.linear = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(functional.conv2d(x, self.weight, padding=1))
        x = functional.relu(functional.conv2d(x, self.part["kernel"], padding=1))
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


def test_weights_that_are_no_layers_own_are_pruned_to_the_end(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Bare()
    result = run_quickly(tmp_path / "run", model)
    graph = dp.ChannelGraph(model, torch.zeros(1, 1, 8, 8))
    assert set(graph.widths(graph.full_genome())) == {"weight", "part.kernel"}
    knee = result.knee
    widths = graph.widths(knee.genome)
    assert len(knee.model.weight) == widths["weight"][0]
    again = dp.load(tmp_path / "run" / "knee.safetensors", Bare())
    assert torch.equal(again.part["kernel"], knee.model.part["kernel"])
    layers = collect(tmp_path / "run")["layers"]
    assert [(layer["name"], layer["width"]) for layer in layers] == [("weight", 4), ("part.kernel", 6)]
    assert write_report(tmp_path / "run").stat().st_size > 10_000


def test_rivals_prune_weights_that_are_no_layers_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Bare()
    problem = make_problem(model, tmp_path)
    graph = problem.graph
    target = Target("half", graph.flops(graph.full_genome()) // 2)
    for name in ("l1", "apoz", "thinet", "auto-balanced"):
        (network,) = METHODS[name].propose(problem, [target])
        assert 0 < graph.flops(network.genome) < 2 * target.flops, name


def test_every_filter_of_a_bare_weight_is_counted_and_found() -> None:
    torch.manual_seed(0)
    model, example = NETWORKS["bare_weights"]()
    graph = dp.ChannelGraph(model, example)
    assert {name: full for name, (_, full) in graph.widths(graph.full_genome()).items()} == {
        "weight": 6,
        "body.kernel": 8,
        "body.upward": 6,
        "body.code": 8,
        "body.code#2": 6,  # the same weight, read the other way round
        "tail.0": 6,
    }
    filters = graph.filters(model)
    assert {name: len(rows) for name, rows in filters.items()} == {
        name: len(genes) for name, genes in graph.layer_genes().items()
    }
    assert torch.equal(filters["body.kernel"][5], model.body.kernel[5].flatten())
    assert torch.equal(filters["body.upward"][4], model.body.upward[4:, 1].flatten())
    assert torch.equal(filters["body.code#2"][2], model.body.code.weight[:, 2].flatten())
    genome = np.arange(graph.num_genes) % 2 == 0
    thin = graph.prune(genome)
    for name, kept in {"weight": len(thin.weight), "body.kernel": len(thin.body.kernel)}.items():
        assert graph.widths(genome)[name][0] == kept
    assert graph.widths(genome)["body.upward"][0] == 2 * thin.body.upward.shape[1]


def test_convolutions_without_a_name_are_listed_one_by_one() -> None:
    graph = dp.ChannelGraph(*NETWORKS["bare_weights_computed_in_forward"]())
    assert [full for _, full in graph.widths(graph.full_genome()).values()] == [4, 6, 6]
    lone = dp.ChannelGraph(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 8, 8))
    assert lone.widths(lone.full_genome()) == {"weight": (4, 4)}
