"""The runs that building a graph costs, and what it falls back on where they cannot be had cheaply."""

import pytest
import torch
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.graph import ChannelGraph
from graph_networks import Net, block, conv, head

IMAGES = torch.zeros(2, 3, 8, 8)


class Counted(nn.Module):
    """Hands on its input and counts how often it did, in all copies together."""

    seen: list[tuple[bool, torch.dtype]] = []  # noqa: RUF012

    def forward(self, x):
        Counted.seen.append((self.training, x.dtype))
        return x


def build(model: nn.Module, example: torch.Tensor = IMAGES) -> ChannelGraph:
    Counted.seen.clear()
    return ChannelGraph(model, example)


def test_a_plain_network_is_run_six_times_and_in_training_at_less_cost():
    graph = build(nn.Sequential(Counted(), block(3, 8), block(8, 6), head(6)))
    assert sorted(Counted.seen, key=str) == [
        *[(False, torch.float64)] * 4,  # on labels, masked, thin, nearly empty
        *[(True, torch.float32)] * 2,  # on labels, thin
    ]
    assert graph.num_genes == 14
    assert graph.notes == []


def test_layers_that_only_training_runs_are_found():
    def run(net, x):
        x = net.stem(x)
        if net.training and float(x.detach().abs().sum()) > 0:
            x = torch.cat([x, net.more(x)], 1)[:, : x.shape[1]]
        return net.head(x)

    graph = build(Net(run, stem=block(3, 8), more=conv(8, 2), head=head(8)))
    assert graph.notes == [
        "item in forward reads values: what they decide about was followed for the example input only"
    ]
    assert graph.num_genes == 10
    for seed in range(20):
        genome = torch.rand(10, generator=torch.Generator().manual_seed(seed)) < 0.5
        graph.prune(genome).train()(IMAGES)


def test_a_batch_of_one_is_doubled_for_norms_that_need_two():
    model = nn.Sequential(
        block(3, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 2)
    )
    graph = build(model, torch.zeros(1, 3, 8, 8))
    assert graph.notes == []
    assert graph.num_genes == 8


def test_training_mode_that_fails_is_noted():
    def run(net, x):
        if net.training:
            raise RuntimeError("not today")
        return net.head(net.stem(x))

    graph = build(Net(run, stem=block(3, 8), head=head(8)))
    assert graph.notes == ["training mode was not traced, its forward failed (RuntimeError: not today)"]
    assert graph.num_genes == 8


def test_forward_code_that_insists_on_its_precision_is_run_in_it():
    def run(net, x):
        return net.head(net.stem(net.count(x.to(torch.float32))))

    graph = build(Net(run, count=Counted(), stem=block(3, 8), head=head(8)))
    assert Counted.seen[-1][1] == torch.float32
    assert graph.verify(torch.arange(8) % 2 == 0).holds


def test_shapes_that_are_drawn_at_random_are_found_out():
    def run(net, x):
        return net.head(net.stem(x)[..., : int(torch.randint(2, 9, ()))])

    with pytest.raises(GraphError, match="draws its structure at random"):
        build(Net(run, stem=conv(3, 8), head=head(8)))
