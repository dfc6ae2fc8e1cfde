"""Whole runs of networks of unusual make: weights without a layer of their own, other precisions."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import deeppruning as dp
from deeppruning.cli.main import cli
from deeppruning.comparison import METHODS
from deeppruning.comparison.problem import Target
from deeppruning.errors import InputError
from deeppruning.jobs.result import Result
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import write_report
from graph_networks import NETWORKS
from rival_helpers import make_problem
from search_helpers import digits, quick_finetune, quick_guided, quick_search, tiny_net


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
    for name in ("l1", "apoz", "auto-balanced"):
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


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("evaluation", ["finetune", pytest.param("recalibrate", marks=pytest.mark.slow)])
def test_networks_of_other_precision_are_pruned_in_it(
    tmp_path: Path, kind: torch.dtype, evaluation: str
) -> None:
    model = tiny_net().to(kind)
    result = run_quickly(tmp_path / "run", model, evaluation=evaluation, eval_lr=0.01)
    for solution in result.solutions:
        weights = list(solution.model.parameters())
        assert {weight.dtype for weight in weights} == {kind}
        assert all(bool(weight.isfinite().all()) for weight in weights)
        assert solution.model(torch.zeros(2, 1, 8, 8, dtype=kind)).dtype == kind
        assert solution.test_error is not None and 0 <= solution.test_error <= 1
    again = dp.load(tmp_path / "run" / "knee.safetensors", tiny_net().to(kind))
    assert {weight.dtype for weight in again.parameters()} == {kind}
    graph = dp.ChannelGraph(model, torch.zeros(1, 1, 8, 8, dtype=kind))
    proof = graph.verify(result.light.genome)
    assert proof.tolerance == 1e-8 and proof.difference < 1e-10  # in double, whatever the network's own


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_the_default_search_scans_and_refits_in_the_precision_of_the_network(
    tmp_path: Path, kind: torch.dtype
) -> None:
    train, test = digits(train=60, test=20)
    result = dp.prune(
        tiny_net().to(kind),
        train,
        test,
        run_dir=tmp_path / "run",
        search=quick_guided(offspring=2, generations=1, sample=40),
        finetune=quick_finetune(epochs=1),
        workers=1,
    )
    weights = [weight for solution in result.solutions for weight in solution.model.parameters()]
    assert {weight.dtype for weight in weights} == {kind}
    assert all(bool(weight.isfinite().all()) for weight in weights)


def test_rivals_work_in_the_precision_of_the_network(tmp_path: Path) -> None:
    problem = make_problem(tiny_net().to(torch.bfloat16), tmp_path)
    target = Target("half", problem.graph.flops(problem.graph.full_genome()) // 2)
    for name in ("l1", "apoz", "auto-balanced"):
        (network,) = METHODS[name].propose(problem, [target])
        thin = problem.graph.prune(network.genome)
        thin.load_state_dict(network.weights or thin.state_dict())
        assert {weight.dtype for weight in thin.parameters()} == {torch.bfloat16}, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": ("*",)}, "nothing of this network can be pruned:\nChannelGraph of TinyNet: 0 genes"),
        ({"min_channels": 8}, "every layer must keep at least 8 filters"),
        ({"round_to": 8}, "a multiple of 8, which is all it has"),
    ],
)
def test_a_network_with_nothing_to_prune_is_refused_before_the_search(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        run_quickly(tmp_path / "run", tiny_net(), **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("trained", [False, True])
def test_the_command_refuses_a_network_with_nothing_to_prune_before_training(
    tmp_path: Path, trained: bool
) -> None:
    file = tmp_path / "nets.py"
    file.write_text(
        "from torch import nn\n"
        "def lone(num_classes=10, in_channels=1, **rest):\n"
        "    layer = nn.Conv2d(in_channels, num_classes, 3)\n"
        "    return nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    given = ["prune", f"{file}:lone", "--data", "digits", "--out", str(tmp_path / "run")]
    if trained:
        weights = {"0.weight": torch.zeros(10, 1, 3, 3), "0.bias": torch.zeros(10)}
        save_file(weights, tmp_path / "lone.safetensors")
        given += ["--weights", str(tmp_path / "lone.safetensors")]
    outcome = CliRunner().invoke(cli, given)
    assert outcome.exit_code != 0
    told = str(outcome.exception) + outcome.output
    assert "nothing of this network can be pruned" in told and "the network's output" in told
    assert (
        sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__") == []
    )
