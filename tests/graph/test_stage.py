"""The runs that building a graph costs, and what it falls back on where they cannot be had cheaply."""

import pytest
import torch
from torch import nn

from deeppruning.errors import GraphError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.follow import execute
from graph_networks import NETWORKS, Net, block, conv, head

IMAGES = torch.zeros(2, 3, 8, 8)


class Counted(nn.Module):
    """Hands on its input and counts how often it has had numbers in it, in all copies together."""

    seen: list[tuple[bool, torch.dtype]] = []  # noqa: RUF012

    def forward(self, x):
        if not x.is_meta:
            Counted.seen.append((self.training, x.dtype))
        return x


def build(model: nn.Module, example: torch.Tensor = IMAGES) -> ChannelGraph:
    Counted.seen.clear()
    return ChannelGraph(model, example)


def test_a_plain_network_is_run_three_times_in_evaluation_and_never_in_training():
    graph = build(nn.Sequential(Counted(), block(3, 8), block(8, 6), head(6)))
    assert Counted.seen == [(False, torch.float64)] * 3  # on labels, silenced, thin
    assert graph.num_genes == 14
    assert graph.notes == []


def test_training_mode_that_needs_numbers_is_run_on_numbers():
    def run(net, x):
        x = net.stem(net.count(x))
        if net.training and float(x.abs().sum()) > 0:
            x = torch.cat([x, net.more(x)], 1)[:, : x.shape[1]]
        return net.head(x)

    graph = build(Net(run, count=Counted(), stem=block(3, 8), more=conv(8, 2), head=head(8)))
    assert (True, torch.float64) in Counted.seen
    assert graph.notes == []
    assert graph.num_genes == 10  # those of the layer that only training runs are among them
    graph.prune(torch.arange(10) % 2 == 0).train()(IMAGES)


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


@pytest.mark.parametrize("name", ["group_norm_few", "layer_norm_channels_last", "batch_norm_without_affine"])
def test_norms_without_data_have_the_shapes_of_those_with(name):
    """The short way for norms must not differ from torch's own in what it gives."""
    data = torch.randn(2, 6, 5, 4, dtype=torch.float64)
    batch_norm = torch.ops.aten.native_batch_norm.default
    layer_norm = torch.ops.aten.native_layer_norm.default
    calls = [
        (batch_norm, (data, None, None, None, None, True, 0.1, 1e-5)),
        (layer_norm, (data, [5, 4], None, None, 1e-5)),
        (layer_norm, (data, [4], torch.ones(4, dtype=torch.float64), None, 1e-5)),
    ]
    for func, args in calls:
        ghosts = tuple(x.to("meta") if isinstance(x, torch.Tensor) else x for x in args)
        made, due = execute(func, ghosts, {}), func(*args)
        assert [(x.shape, x.dtype) for x in made] == [(x.shape, x.dtype) for x in due]
        assert made[0].stride() == due[0].stride()
    model, example = NETWORKS[name]()
    assert build(model, example).notes == []
