"""Refit of single layers: of any kind and precision, never further from what is wanted than as cut."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import deeppruning as dp
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.refitting import Reference, refit_in_place, refit_with
from deeppruning.refitting.patches import answers_at

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gaps(reference, thin, cut, name, filters):
    """How far a layer is from the original's answers on what it reads in the refitted network."""
    known, read = reference.layers[name], []
    layer = thin.get_submodule(name)
    handle = layer.register_forward_pre_hook(lambda m, i: read.append(i[0].clone()))
    with torch.no_grad():
        for args, kwargs in reference.parts:
            thin(*args, **kwargs)
        handle.remove()
        wanted = known.answers[..., filters]
        linear = isinstance(layer, nn.Linear)
        return [
            float(
                (answers_at(each(torch.cat(read)), known.places, channels_last=linear) - wanted)
                .square()
                .sum()
            )
            for each in (layer, cut.get_submodule(name))
        ]


@settings(max_examples=15, deadline=None)
@given(
    rank=st.sampled_from([1, 2, 3]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 1),
    padding_mode=st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
    groups=st.sampled_from([1, 2, 6]),
    bias=st.booleans(),
    ridge=st.sampled_from([0.001, 0.03, 1.0]),
    seed=st.integers(0, 99),
)
def test_no_convolution_is_further_from_its_answers_than_as_cut(
    rank, kernel, stride, dilation, padding, padding_mode, groups, bias, ridge, seed
):
    torch.manual_seed(seed)
    convolution = CONVOLUTIONS[rank]
    model = nn.Sequential(
        convolution(2, 6, 1),
        nn.ReLU(),
        convolution(
            6, 6, kernel, stride, padding, dilation, groups=groups, bias=bias, padding_mode=padding_mode
        ),
        nn.Tanh(),
        convolution(6, 3, 1),
    ).eval()
    shape = (2, *[5, 6, 5][:rank])
    graph = ChannelGraph(model, torch.zeros(1, *shape))
    genome = graph.repair(np.random.default_rng(seed).random(graph.num_genes) < 0.7)
    reference = Reference.of(graph, drawn(16, *shape, seed=seed))
    thin, cut = refit_with(reference, graph, genome, ridge=ridge).model, graph.prune(genome).eval()
    recipe = graph.recipe(genome)
    for name in ("0", "2", "4"):
        assert name in reference.layers
        kept = [
            recipe.kept[axis] for place, axis in recipe.parameters.get(f"{name}.weight", ()) if place == 0
        ]
        filters = torch.as_tensor(kept[0]) if kept else torch.arange(len(model[int(name)].weight))
        refitted, as_cut = gaps(reference, thin, cut, name, filters)
        assert refitted <= as_cut * (1 + 1e-3) + 1e-5


class Read(nn.Module):
    """A convolution read by a linear layer: as one vector an input, a sequence, or a map."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.convolution = nn.Conv2d(3, 12, 3)
        self.linear = nn.Linear(12, 4)

    def forward(self, x):
        x = torch.relu(self.convolution(x))
        if self.kind == "vector":
            return self.linear(x.mean((2, 3)))
        return self.linear(x.flatten(2).mT if self.kind == "sequence" else x.permute(0, 2, 3, 1))


@pytest.mark.parametrize("kind", ["vector", "sequence", "map"])
def test_linear_layers_of_vectors_sequences_and_maps(kind):
    torch.manual_seed(0)
    model = Read(kind).eval()
    graph = ChannelGraph(model, torch.zeros(1, 3, 6, 6))
    genome = np.arange(graph.num_genes) % 3 > 0
    images = drawn(80, 3, 6, 6)
    thin = dp.refit(graph, genome, images)
    with torch.no_grad():
        wanted = model(images)
        refitted = float((thin(images) - wanted).square().mean())
        as_cut = float((graph.prune(genome).eval()(images) - wanted).square().mean())
    assert thin.linear.weight.shape == (4, 8)
    assert refitted < as_cut / 2


def test_a_channel_that_copies_another_is_not_missed():
    """Filter 1 is twice filter 0: without it the next layer can answer exactly as before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    with torch.no_grad():
        model[0].weight[1] = 2 * model[0].weight[0]
    graph = ChannelGraph(model, torch.zeros(1, 3, 6, 6))
    images = drawn(32, 3, 6, 6)
    thin = dp.refit(graph, np.array([1, 0, 1, 1], dtype=bool), images, ridge=0.0)
    with torch.no_grad():
        assert torch.allclose(thin(images), model(images), atol=1e-4)
    by_hand = model[2].weight[:, 0] + 2 * model[2].weight[:, 1]
    assert torch.allclose(thin[2].weight[:, 0], by_hand, atol=1e-3)


class Added(nn.Module):
    """Two residual branches in a row, with batch norms whose channels have scales of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first = self.branch()
        self.second = self.branch()

    def branch(self) -> nn.Module:
        norm = nn.BatchNorm2d(8)
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(-1.0, 2.0, 8))
        return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1, bias=False), norm)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = x + self.first(x)
        return x + self.second(x)


def test_a_later_branch_makes_up_for_one_that_is_gone():
    torch.manual_seed(0)
    model = Added().eval()
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8), depth=True)
    images = drawn(64, 3, 8, 8)
    reference = Reference.of(graph, images)
    assert [n for n, known in reference.layers.items() if known.partner] == ["first.2", "second.2"]
    genome = graph.full_genome()
    genome[list(next(group.genes for group in graph.groups if group.removable))] = False
    with_partners = refit_with(reference, graph, genome).model
    for known in reference.layers.values():
        known.partner = None
    without = refit_with(reference, graph, genome).model
    with torch.no_grad():
        wanted = model(images)
        errors = [float((thin(images) - wanted).square().mean()) for thin in (with_partners, without)]
    assert errors[0] < 0.95 * errors[1]


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_batch_norms_of_all_sorts(options, rank):
    torch.manual_seed(0)
    model = nn.Sequential(
        CONVOLUTIONS[rank](3, 8, 1, bias=False),
        NORMS[rank](8, **options),
        nn.ReLU(),
        CONVOLUTIONS[rank](8, 3, 1),
    ).eval()
    shape = (3, *[4] * rank)
    graph = ChannelGraph(model, torch.zeros(1, *shape))
    genome = np.arange(graph.num_genes) % 4 > 0
    images = drawn(64, *shape)
    thin, cut = dp.refit(graph, genome, images), graph.prune(genome).eval()
    with torch.no_grad():
        wanted = model(images)
        errors = [float((network(images) - wanted).square().mean()) for network in (thin, cut)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, torch.float64])
def test_networks_of_other_precisions(precision):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)
    ).eval()
    model.to(precision)
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8, dtype=precision))
    genome = np.arange(graph.num_genes) % 4 > 0
    images = drawn(32, 3, 8, 8)
    thin, cut = dp.refit(graph, genome, images), graph.prune(genome).eval()
    assert {p.dtype for p in thin.parameters()} == {precision}
    with torch.no_grad():
        wanted = model(images.to(precision))
        errors = [float((net(images.to(precision)) - wanted).double().square().mean()) for net in (thin, cut)]
    assert errors[0] < errors[1]


def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    return model, ChannelGraph(model, torch.zeros(1, 3, 8, 8))


def test_in_place_is_the_same_as_with_a_cut_of_its_own():
    _, graph = small()
    reference = Reference.of(graph, drawn(32, 3, 8, 8))
    genome = np.arange(graph.num_genes) % 4 > 0
    thin = graph.prune(genome)
    assert refit_in_place(reference, graph, genome, thin) == {}
    expected = refit_with(reference, graph, genome).model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in thin.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in thin.modules())


def test_channels_that_never_speak_do_no_harm():
    model, graph = small()
    with torch.no_grad():
        model[0].weight[2:4] = 0.0
        model[0].bias[2:4] = -1.0
    images = drawn(32, 3, 8, 8)
    images[:, 1] = 0.0
    genome = np.arange(graph.num_genes) % 4 > 0
    for ridge in (0.0, 0.03):
        thin = dp.refit(graph, genome, images, ridge=ridge)
        assert all(bool(p.isfinite().all()) and float(p.abs().max()) < 10 for p in thin.parameters())


def test_too_few_equations_are_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 40, 1), nn.ReLU(), nn.Flatten(), nn.Linear(40, 2)).eval()
    graph = ChannelGraph(model, torch.zeros(1, 4, 1, 1))
    with pytest.raises(InputError, match=r"at least 16 inputs to learn from, got 5.*40 would give every"):
        dp.refit(graph, graph.full_genome(), drawn(5, 4, 1, 1))
    with pytest.warns(UserWarning, match="40 inputs"):
        dp.refit(graph, graph.full_genome(), drawn(20, 4, 1, 1))
    genome = graph.full_genome()
    genome[0] = False
    left = refit_with(Reference.of(graph, drawn(20, 4, 1, 1)), graph, genome, ridge=0.0).left
    assert left == {"3": "it has 39 unknowns and only 20 equations: give 40 inputs, or a ridge above 0"}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (drawn(16, 4, 8, 8), "the network cannot run on these inputs: .*3 channels"),
        (drawn(16, 3), "the network cannot run on these inputs"),
        (np.zeros((16, 3, 8, 8)), "tensor.*got ndarray"),
        (torch.full((16, 3, 8, 8), float("nan")), "NaN or infinity"),
        ((drawn(16, 3, 8, 8), drawn(16, 1)), "the network cannot run on these inputs"),
        ({"image": drawn(16, 3, 8, 8)}, "the network cannot run on these inputs"),
        ([], "inputs with a batch are needed"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(inputs, message):
    _, graph = small()
    with pytest.raises(InputError, match=message):
        dp.refit(graph, graph.full_genome(), inputs)


@pytest.mark.parametrize("ridge", [-0.1, float("nan"), float("inf")])
def test_a_ridge_out_of_range_is_refused(ridge):
    _, graph = small()
    with pytest.raises(InputError, match="ridge must be at least 0 and finite"):
        dp.refit(graph, graph.full_genome(), drawn(16, 3, 8, 8), ridge=ridge)
