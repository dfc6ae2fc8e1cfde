"""What forward code reads of tensors or makes of its own, held against filters zeroed where they are made."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.recipe import Recipe
from graph_checks import digests, masked_by_hooks
from graph_networks import NETWORKS, Net, block, head
from graph_networks.parts import around

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = torch.zeros(2, 3, 6, 6)
Middle = Callable[[Net, Tensor], Tensor]


def masked(where: Callable[[int], Any]) -> Middle:
    """A mask made in the forward code, half as strong at some positions."""

    def run(net: Net, x: Tensor) -> Tensor:
        mask = x.new_ones(1, x.shape[1], 1, 1)
        mask[:, where(x.shape[1])] = 0.5
        return x * mask

    return run


def gated(net: Net, x: Tensor) -> Tensor:
    """Each map by its mean, with every dimension of size 1 left out on the way."""
    return x * F.adaptive_avg_pool2d(x, 1).squeeze()[..., None, None]


def filled(net: Net, x: Tensor) -> Tensor:
    """Memory that is written to after it was asked for."""
    memory = torch.empty_like(x)
    memory[:, :, ::2] = x[:, :, ::2]
    memory[:, :, 1::2] = x[:, :, 1::2] * 2
    return memory


def seeded(x: Tensor, k: int) -> Tensor:
    """One number per channel, drawn anew from the same seed in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(k)
        return torch.rand(1, x.shape[1], 1, 1, dtype=x.dtype)


def drawn_alike(x: Tensor, k: int) -> Tensor:
    """The same from a generator that is made in the forward code."""
    return torch.rand(x.shape[1], generator=torch.Generator().manual_seed(k))[None, :, None, None]


def middles(k: int) -> dict[str, Middle]:
    """What may be done between two blocks, with a number to choose; zeros stay zeros."""
    return {
        "wider than": lambda net, x: x * 2 if x.shape[1] > k else x,
        "narrower than": lambda net, x: x * 2 if len(x[0]) < k + 3 else x,
        "one width": lambda net, x: x * 2 if x.shape[1] == k else x,
        "some widths": lambda net, x: x * 2 if x.size(1) in (k, k + 2) else x,
        "remainder": lambda net, x: x * (1 + x.shape[1] % (k + 1)),
        "quotient": lambda net, x: x * 2 if x.shape[1] // 2 == k // 2 else x,
        "table": lambda net, x: x * ([1.0] * k + [2.0] + [1.0] * 10)[x.shape[1]],
        "dictionary": lambda net, x: x * {k: 2.0}.get(x.shape[1], 1.0),
        "stored width": lambda net, x: x * 2 if net.body[0].in_channels == k else x,
        "middle weight": lambda net, x: x * 2 if len(net.body[0].weight) == k else x,
        "odd width": lambda net, x: x * 2 if x.size(1) % 2 else x,
        "attribute": lambda net, x: x * 2 if net.stem[0].out_channels > k else x,
        "weight": lambda net, x: x * 2 if net.stem[0].weight.shape[0] > k else x,
        "two widths": lambda net, x: x * 2 if x.shape[1] > net.tail[0].weight.size(0) else x,
        "by width": lambda net, x: x / x.shape[1],
        "by count": lambda net, x: x * (x.sum() / x.numel()),
        "rows by width": lambda net, x: x[:, :, : 2 + x.shape[1] // 3],
        "branch on sum": lambda net, x: x * 2 if x.sum() > 0 else x,
        "branch on mean": lambda net, x: x * 2 if x.mean() > 0.1 * k else x,
        "branch on map": lambda net, x: x * 2 if x[:, k % x.shape[1]].mean() > 0 else x,
        "mask from": masked(lambda width: slice(k, None)),
        "mask to": masked(lambda width: slice(None, k)),
        "mask one": masked(lambda width: -1 if k % 2 else 0),
        "mask half": masked(lambda width: slice(width // 2, None)),
        "mask some": masked(lambda width: slice(k % 2, None, 2)),
        "uniform": lambda net, x: x * torch.full((1, x.shape[1], 1, 1), 0.5 + k, dtype=x.dtype),
        "counted": lambda net, x: x * torch.ones(1, x.shape[1], 1, 1).cumsum(1),
        "seed set": lambda net, x: x * seeded(x, k),
        "own generator": lambda net, x: x * drawn_alike(x, k),
        "count of ones": lambda net, x: x * torch.ones_like(x).sum(1, keepdim=True),
        "zeros": lambda net, x: x + torch.zeros_like(x),
        "roll by width": lambda net, x: F.pad(x.roll(x.shape[1] // 2, 2), (0, 0, 0, 2)),
        "roll": lambda net, x: F.pad(x.roll(k, 3), (0, 2)),
        "roll channels": lambda net, x: x.roll(k, 1),
        "gate squeezed": gated,
        "memory": filled,
        "item of mean": lambda net, x: x * x.mean().item(),
        "float of spread": lambda net, x: x * float(x.var(1, unbiased=False).mean()),
        "list of means": lambda net, x: x * x.mean((1, 2, 3)).tolist()[0],
        "numpy of means": lambda net, x: x * float(x.mean((1, 2)).numpy()[0, 0]),
        "item of sum": lambda net, x: x * x.sum().item(),
        "item of maximum": lambda net, x: x * x.max().item(),
        "list of maxima": lambda net, x: x * x.amax((2, 3)).tolist()[0][0],
        "numpy of a map": lambda net, x: x * float(np.asarray(x)[0, -1].sum()),
        "item of a value": lambda net, x: x * x[0, k % x.shape[1], 1, 1].item(),
    }


def drawn(seed: int) -> tuple[list[str], Net]:
    """A network of three blocks with two random things done between them."""
    generator = np.random.default_rng(seed)
    width, k = int(generator.integers(3, 10)), int(generator.integers(1, 6))
    table = middles(k)
    names = [str(name) for name in generator.choice(list(table), 2)]
    torch.manual_seed(seed)
    first, second = (table[name] for name in names)
    model = Net(
        lambda net, x: net.head(net.tail(second(net, net.body(first(net, net.stem(x)))))),
        stem=block(3, width),
        body=block(width, width),
        tail=block(width, 4),
        head=head(4),
    )
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.bias, 0.2, 1.0)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
    return [f"width {width}, {k}", *names], model.double().eval()


def check(seed: int, genomes: int) -> None:
    what, model = drawn(seed)
    graph = ChannelGraph(model, IMAGES)
    images = torch.randn(IMAGES.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    generator = np.random.default_rng(seed)
    for share in (0.0, *generator.random(genomes)):
        genome = graph.repair(generator.random(graph.num_genes) < share)
        with torch.no_grad():
            due = masked_by_hooks(model, graph, genome, images)
            found = graph.prune(genome)(images)
        assert torch.allclose(found, due, rtol=1e-9, atol=1e-9), (what, genome.astype(int).tolist())


@pytest.mark.parametrize("start", (0, 6))
def test_random_networks_do_what_zeroed_filters_do(start):
    for seed in range(start, start + 6):
        check(seed, 4)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 3000, 50))
def test_thousands_of_random_networks_do_what_zeroed_filters_do(start):
    for seed in range(start, start + 50):
        check(seed, 12)


@pytest.mark.parametrize("name", ("seed set", "own generator", "count of ones", "roll channels", "counted"))
@pytest.mark.parametrize("width", (4, 6))
def test_constants_and_rolls_that_depend_on_the_width_are_settled(name, width):
    torch.manual_seed(0)
    middle = middles(width)[name]  # a roll by the full width, which does nothing until some channel is gone
    model = around(middle, width).double().eval()
    graph = ChannelGraph(model, IMAGES)
    assert graph.layer_genes()["stem.0"] == [-1] * width
    assert graph.num_genes == 6


@pytest.mark.parametrize(
    "gate",
    [
        lambda x: x * x.mean(1, keepdim=True),
        lambda x: x + x.mean(1, keepdim=True),
        lambda x: x * (x > x.mean(1, keepdim=True)),
        lambda x: torch.maximum(x, x.mean(1, keepdim=True) / 2),
        lambda x: x * (x > 1).to(x).mean(1, keepdim=True),
        lambda x: x * x.var(1, keepdim=True, unbiased=False).sqrt(),
        lambda x: x.mean(1, keepdim=True) / (x + 1),
    ],
    ids=["times", "plus", "compared", "limit", "share", "spread", "divided"],
)
def test_a_mean_over_channels_that_does_not_norm_them_freezes_them(gate):
    torch.manual_seed(0)
    graph = ChannelGraph(around(lambda net, x: gate(x), 8), IMAGES)
    assert graph.layer_genes()["stem.0"] == [-1] * 8


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: x - x.mean(1, keepdim=True),
        lambda x: -x.mean(1, keepdim=True) + x,
        lambda x: x * (1 / (1e-5 + x.square().mean(1, keepdim=True)).sqrt()),
        lambda x: x * (1e-5 + x.square().mean(1, keepdim=True)) ** -0.5,
        lambda x: x / (1e-5 + x.mean(1, keepdim=True)),
        lambda x: x * (2 / (1 + x.var(1, keepdim=True, unbiased=False))),
    ],
    ids=["centred", "negated", "inverse", "power", "divided", "scaled"],
)
def test_a_norm_across_channels_written_by_hand_freezes_nothing(norm):
    torch.manual_seed(0)
    graph = ChannelGraph(around(lambda net, x: norm(x), 8), IMAGES)
    assert graph.num_genes == 14
    assert all(graph.verify(genome).holds for genome in np.random.default_rng(0).random((5, 14)) < 0.5)


def test_an_own_seed_that_no_channel_depends_on_freezes_nothing():
    def run(net: Net, x: Tensor) -> Tensor:
        return x * torch.rand(x.shape[2:], generator=torch.Generator().manual_seed(3))

    assert ChannelGraph(around(run, 8), IMAGES).num_genes == 14


def frozen_by(name: str) -> tuple[int, str]:
    """How many filters of the stem always stay, and the first reason."""
    torch.manual_seed(0)
    graph = ChannelGraph(*NETWORKS[name]())
    stem = graph._plan.layers[0]
    return stem.genes.tolist().count(-1), next(iter(stem.reasons), "")


@pytest.mark.parametrize(
    ("name", "count", "reason"),
    [
        ("scaled_by_mean_as_number", 8, "mean in the network's forward mixes channels"),
        ("scaled_by_list_of_means", 8, "mean in the network's forward mixes channels"),
        ("scaled_by_mean_in_numpy", 8, "mean in the network's forward mixes channels"),
        ("scaled_by_sum_as_number", 0, ""),
        ("threshold_on_width", 8, "mul in forward: a size or order is written into the code"),
        ("threshold_on_attribute", 8, "mul in forward: a size or order is written into the code"),
        ("mask_made_in_forward", 8, "mul in forward: a size or order is written into the code"),
        ("mask_that_follows_its_layer", 0, ""),
        ("counted_channels", 8, "mul in forward: a size or order is written into the code"),
        ("rolled_by_half_the_width", 8, "roll in forward: a size or order is written into the code"),
        ("squeezed_map", 2, "squeeze in forward must not be left with one channel"),
        ("memory_filled_later", 0, ""),
        ("branch_on_the_input", 0, ""),
    ],
)
def test_what_is_read_freezes_as_much_as_it_must(name, count, reason):
    assert frozen_by(name) == (count, reason)


READ = "reads values: what they decide about was followed for the example input only"


class Told(nn.Module):
    """Multiplies by a number that it takes out of the network."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(np.asarray(x.sum((1, 2, 3)))[0])


def test_reads_of_values_are_noted_with_operation_and_module():
    def run(net: Net, x: Tensor) -> Tensor:
        return net.told(x * 2 if x.abs().sum() > 0 else x)

    graph = ChannelGraph(around(run, 8, told=Told()), IMAGES)
    assert graph.notes == [f"item in forward {READ}", f"numpy in told {READ}"]
    assert str(graph).endswith(f"note: item in forward {READ}\nnote: numpy in told {READ}")


@pytest.mark.parametrize(("bias", "way"), [(100.0, "one"), (-100.0, "other")])
def test_the_way_taken_is_that_of_the_network_s_own_weights(bias, way):
    def run(net: Net, x: Tensor) -> Tensor:
        turn = net.one if net.gate(x).sum() > 0 else net.other
        return net.head(turn(net.stem(x)))

    parts = {"one": block(8, 6), "other": nn.Sequential(block(8, 6), nn.Dropout(), block(6, 6))}
    model = Net(run, stem=block(3, 8), gate=nn.Conv2d(3, 1, 1), **parts, head=head(6))
    nn.init.constant_(model.gate.bias, bias)
    graph = ChannelGraph(model, IMAGES)
    assert {name.split(".")[0] for name in graph.layer_genes()} == {"stem", "gate", way}
    assert graph.verify(np.arange(graph.num_genes) % 2 == 0).holds


@pytest.mark.parametrize("read", (lambda x: x, Tensor.item), ids=("tensor", "number"))
def test_a_cut_that_turns_a_branch_is_compared_on_the_way_that_was_traced(read):
    def run(net: Net, x: Tensor) -> Tensor:
        alive = (x.abs().sum((0, 2, 3)) > 0).sum()
        return x * 2 if read(alive) > 7 else net.other(x)

    torch.manual_seed(0)
    graph = ChannelGraph(around(run, 8, other=block(8, 8)), IMAGES)
    assert graph.num_genes == 14
    genomes = np.random.default_rng(0).random((6, 14)) < 0.5
    assert all(graph.verify(genome).holds for genome in genomes)


def test_layers_that_other_values_would_lead_to_are_named():
    def run(net: Net, x: Tensor) -> Tensor:
        return net.seldom(x) if x.abs().sum() < 0 else x

    graph = ChannelGraph(around(run, 8, seldom=block(8, 8)), IMAGES)
    assert graph.notes[1:] == [
        "seldom.0, seldom.1: not run on the example input, so a thin network may fail there"
    ]


def by_side(net: Net, x: Tensor) -> Tensor:
    return net.seldom(x) if x.shape[-1] > 8 else x


@pytest.mark.parametrize(
    "layer",
    (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.GroupNorm(2, 8), block(8, 8)),
    ids=lambda x: type(x).__name__,
)
def test_a_layer_that_did_not_run_is_noted_and_says_so_when_it_is_reached(layer):
    torch.manual_seed(0)
    graph = ChannelGraph(around(by_side, 8, seldom=layer).eval(), IMAGES)
    first = "seldom.0" if isinstance(layer, nn.Sequential) else "seldom"
    (note,) = graph.notes
    assert note.startswith(first)
    assert note.endswith("not run on the example input, so a thin network may fail there")
    thin = graph.prune(np.arange(14) % 2 == 0)
    large = torch.zeros(2, 3, 12, 12)
    assert thin(IMAGES).shape == (2, 5)
    for network in (thin, pickle.loads(pickle.dumps(thin.seldom))):
        with pytest.raises(
            GraphError, match=f"^{first} reads 8 channels and is given 4: it did not run on the exa"
        ):
            network(large if network is thin else torch.zeros(2, 4, 6, 6))
    assert graph.prune(graph.full_genome())(large).shape == (2, 5)
    again = Recipe.from_json(graph.recipe(graph.full_genome()).to_json())
    assert again.unreached[0] == first


def test_layers_whose_weights_alone_are_used_have_run():
    def run(net: Net, x: Tensor) -> Tensor:
        return F.conv2d(x, net.other.weight, net.other.bias)

    assert ChannelGraph(around(run, 8, other=nn.Conv2d(8, 8, 1)), IMAGES).notes == []


def test_numbers_that_do_not_depend_on_the_input_are_not_noted():
    def run(net: Net, x: Tensor) -> Tensor:
        return x * torch.linspace(0.5, 1, 3).tolist()[0] * float(net.stem[1].eps + net.scale)

    graph = ChannelGraph(around(run, 8, scale=nn.Parameter(torch.ones(()))), IMAGES)
    assert graph.notes == []
    assert graph.num_genes == 14


@pytest.mark.parametrize(
    "run",
    [
        lambda net, x: F.dropout(x, 0.5, training=True),
        lambda net, x: F.dropout2d(x, 0.5, training=True),
        lambda net, x: x + torch.randn_like(x),
        lambda net, x: x * (0.7 + torch.rand(len(x), x.shape[1], 1, 1)).floor(),
        lambda net, x: x + 0 * torch.empty_like(x),
    ],
    ids=["dropout", "dropout2d", "noise", "mask", "memory"],
)
def test_what_is_left_to_chance_does_not_decide_about_a_graph(run):
    torch.manual_seed(0)
    graph = ChannelGraph(around(run, 8), IMAGES)
    assert graph.num_genes == 14
    genomes = np.random.default_rng(0).random((4, 14)) < 0.5
    assert all(graph.verify(genome).difference < 1e-8 for genome in genomes)


CHANCY = ("memory_filled_later", "dropout", "stochastic_depth_whole_block", "scaled_by_mean_in_numpy")


def built_apart(names: list[str], number: int) -> dict[str, str]:
    """The same from another process, whose memory holds other garbage and whose hashes are others."""
    code = "import json, sys, graph_checks; print(json.dumps(graph_checks.digests(sys.argv[1:])))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(number)}
    environment["MALLOC_PERTURB_"] = str(number)
    command = [sys.executable, "-W", "ignore", "-c", code, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_graph_is_the_same_in_another_process():
    assert built_apart(list(CHANCY), 77) == digests(CHANCY)


@pytest.mark.slow
def test_every_graph_is_the_same_in_any_process():
    here = digests(NETWORKS)
    assert len(here) > 100
    assert all(built_apart(list(NETWORKS), number) == here for number in (1, 131, 255))
