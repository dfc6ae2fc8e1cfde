"""Whole branches can go: the cut runs, trains, is proven and priced exactly, and stores nothing of them."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_map

from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.hollow import Answer, Extents, Hollow, answer_of
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.models import create_model, list_models
from graph_checks import assert_untouched, batch_of, call, counted, filled, snapshot, train_one_step
from graph_networks import NETWORKS


def removable(graph: ChannelGraph) -> list[np.ndarray]:
    """The genes of each group that may be emptied."""
    return [np.array(group.genes) for group in graph.groups if group.removable]


def emptying(graph: ChannelGraph, chosen: list[np.ndarray], share: float = 0.7) -> np.ndarray:
    """A genome without the chosen groups, the others thinned at random."""
    genome = np.random.default_rng(5).random(graph.num_genes) < share
    for genes in removable(graph):
        genome[genes[0]] = True
    for genes in chosen:
        genome[genes] = False
    return genome


def choices(graph: ChannelGraph) -> dict[str, np.ndarray]:
    """Genomes that empty one group, some at random, and all of them."""
    groups = removable(graph)
    generator = np.random.default_rng(11)
    some = [genes for genes in groups if generator.random() < 0.5]
    return {
        "one": emptying(graph, groups[:1]),
        "last": emptying(graph, groups[-1:]),
        "some": emptying(graph, some),
        "all": emptying(graph, groups),
    }


def depends_on_input(model: nn.Module, example: Any) -> bool:
    """Whether other inputs give other outputs, weights being such that no rectifier is dead by chance."""
    alive = copy.deepcopy(model).eval().double()
    with torch.no_grad():
        for parameter in alive.parameters():
            parameter.copy_(torch.rand_like(parameter) + 0.1)
            if parameter.ndim > 1:
                parameter /= parameter[0].numel()
        inputs = [tree_map(lambda x, scale=scale: x.abs().double() * scale, example) for scale in (0.1, 0.2)]
        first, second = (tensors_in(call(alive, each)) for each in inputs)
    return any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))


def check_emptied(graph: ChannelGraph, model: nn.Module, example: Any, genome: np.ndarray) -> nn.Module:
    """One genome: proven, priced, alive, and names that the network had."""
    proof = graph.verify(genome)
    assert proof.difference <= proof.tolerance <= 1e-3
    thin = graph.prune(genome)
    assert graph.params(genome) == sum(p.numel() for p in thin.parameters())
    assert graph.size(genome) == sum(t.nbytes for t in thin.state_dict().values())
    assert graph.flops(genome) * batch_of(example) == counted(thin, example)
    assert depends_on_input(thin, example)
    layers = {name for name, _ in model.named_modules(remove_duplicate=False)}
    assert {name.rpartition(".")[0] for name in thin.state_dict()} <= layers
    repaired = graph.repair(genome)
    assert np.array_equal(graph.repair(repaired), repaired)
    return thin


# One or two of each kind; all others, most of which have no branch, are slow to go through.
SMALL = (
    "bottleneck_residual", "preactivation_residual", "inverted_gated_residual", "dense_bottleneck_layer",
    "inception_in_a_residual", "auxiliary_head_on_a_branch", "strided_branches_of_other_sizes",
    "residual_of_sequences", "residual_in_place", "residual_pad_in_lambda_module", "cat_inception", "unet",
    "shuffle_unit", "gate_by_convolutions", "several_inputs", "convnext_block",
    "residual_of_norms_with_activations", "residual_of_group_norms",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_branches_of_a_small_network_can_go(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    before = snapshot(model)
    graph = ChannelGraph(model, example, depth=True)
    example = filled(example)
    for genome in choices(graph).values():
        thin = check_emptied(graph, model, example, genome)
        train_one_step(copy.deepcopy(thin), example)
    assert_untouched(model, before)


ZOO = [
    name for name in list_models() if name not in ("resnet32", "resnet44", "resnet56", "resnet110", "vgg19")
]


LARGE = ("densenet100", "densenet50", "vgg16", "efficientnet_b0", "mobilenet_v2", "googlenet", "squeezenet")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in ZOO]
)
def test_branches_of_a_zoo_network_can_go(name):
    torch.manual_seed(0)
    model = create_model(name, image_size=8)
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8), depth=True)
    assert len(removable(graph)) == BRANCHES.get(name, 0)
    example = torch.randn(1, 3, 8, 8)
    for genome in list(choices(graph).values())[2:]:
        thin = check_emptied(graph, model, example, genome)
        train_one_step(thin, torch.randn(2, 3, 8, 8))


# Residual blocks; growth and bottleneck of each dense layer; inception branches, those of two layers twice;
# expansion of each inverted residual with a shortcut, and the gates of all.
BRANCHES = {
    "resnet20": 9,
    "densenet40": 36,
    "densenet50": 42,
    "densenet100": 96,
    "mobilenet_v2": 10,
    "efficientnet_b0": 9 + 16,
    "googlenet": 9 * 6,
    "squeezenet": 8 * 2,
}

LAYERS = st.one_of(
    st.builds(
        lambda k, s, p, d: nn.Conv2d(2, 3, k, stride=s, padding=p, dilation=d),
        st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2),
    ),
    st.builds(lambda k: nn.Conv2d(2, 3, k, padding="same"), st.integers(1, 4)),
    st.builds(
        lambda k, s, p: nn.ConvTranspose2d(2, 3, k, stride=s, padding=p, output_padding=s - 1),
        st.integers(2, 4), st.integers(1, 3), st.integers(0, 1),
    ),
    st.builds(
        lambda k, s, p, c: nn.MaxPool2d(k, s, padding=min(p, k // 2), ceil_mode=c),
        st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.booleans(),
    ),
    st.builds(
        lambda k, s, c: nn.AvgPool2d(k, s, ceil_mode=c), st.integers(1, 4), st.integers(1, 3), st.booleans()
    ),
    st.builds(nn.AdaptiveAvgPool2d, st.integers(1, 5)),
    st.just(nn.BatchNorm2d(2)),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(LAYERS, st.integers(9, 14), st.integers(9, 14))
def test_a_stand_in_gives_the_shape_of_its_layer(layer, height, width):
    extents = Extents.of(layer)
    image = torch.zeros(2, 2, height, width)
    expected = list(layer.eval()(image).shape)
    expected[1] = 0
    assert list(Hollow(extents)(image).shape) == expected
    expected[1] = 4
    assert list(Answer(torch.zeros(4), extents)(torch.zeros(2, 0, height, width)).shape) == expected


def test_other_ranks_and_layouts_keep_their_shapes():
    assert Hollow(Extents.of(nn.Linear(5, 3)))(torch.zeros(2, 7, 5)).shape == (2, 7, 0)
    assert Hollow(Extents.of(nn.LayerNorm(5)))(torch.zeros(2, 7, 5)).shape == (2, 7, 0)
    assert Hollow(Extents.of(nn.Conv3d(1, 2, 3)))(torch.zeros(2, 1, 5, 6, 7)).shape == (2, 0, 3, 4, 5)
    assert Hollow(Extents.of(nn.Conv2d(1, 2, 3)))(torch.zeros(1, 5, 6)).shape == (0, 3, 4)  # no batch
    assert Hollow(Extents.of(nn.AdaptiveAvgPool2d([2, 3])))(torch.zeros(1, 4, 6, 6)).shape == (1, 0, 2, 3)
    linear = Answer(torch.tensor([1.0, 2.0]), Extents.of(nn.Linear(5, 2)))
    assert torch.equal(linear(torch.zeros(3, 0)), torch.tensor([[1.0, 2.0]] * 3))
    assert Extents.of(nn.LSTM(2, 2)) is None


def test_what_reads_nothing_answers_with_its_bias_through_its_norm():
    conv, norm = nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, eps=0.0)
    conv.bias.data = torch.tensor([1.0, 5.0])
    assert answer_of(conv, None).tolist() == [1.0, 5.0]
    norm.running_mean.copy_(torch.tensor([0.0, 1.0]))
    norm.running_var.copy_(torch.tensor([4.0, 16.0]))
    norm.weight.data, norm.bias.data = torch.tensor([2.0, 3.0]), torch.tensor([0.5, 0.0])
    assert answer_of(norm, conv).tolist() == [1.5, 3.0]  # 2 * (1 - 0) / 2 + 0.5, 3 * (5 - 1) / 4
    assert answer_of(nn.Conv2d(3, 2, 1, bias=False), None).tolist() == [0.0, 0.0]
    assert answer_of(nn.ConvTranspose2d(4, 6, 1, groups=2, bias=False), None).tolist() == [0.0] * 6


def thin_resnet() -> tuple[nn.Module, ChannelGraph, np.ndarray]:
    """A ResNet of the zoo without its second and last blocks, thinned elsewhere."""
    torch.manual_seed(3)
    model = create_model("resnet20", image_size=8)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    graph = ChannelGraph(model.eval(), torch.zeros(1, 3, 8, 8), depth=True)
    return model, graph, emptying(graph, [removable(graph)[1], removable(graph)[-1]])


def test_nothing_of_a_lost_block_is_stored_or_run():
    _, graph, genome = thin_resnet()
    thin = graph.prune(genome)
    assert [name for name in thin.state_dict() if name.startswith("layer1.1.")] == ["layer1.1.bn2.bias"]
    called = []
    for name, module in thin.named_modules():
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d)):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    thin(torch.zeros(1, 3, 8, 8))
    assert called and not [name for name in called if name.startswith(("layer1.1.", "layer3.2."))]
    assert graph.widths(genome)["layer1.1.conv1"] == (0, 16)


def test_graph_and_table_name_what_would_go():
    _, graph, _ = thin_resnet()
    group = next(group for group in graph.groups if group.layers == ("layer1.1.conv1",))
    assert group.branch == ("layer1.1.bn1", "layer1.1.bn2", "layer1.1.conv1", "layer1.1.conv2")
    assert "9 groups may lose all filters:" in str(graph)
    assert "layer1.1.bn1 layer1.1.bn2 layer1.1.conv1 layer1.1.conv2 would go" in str(graph)
    plain = ChannelGraph(create_model("resnet20", image_size=8), torch.zeros(1, 3, 8, 8))
    assert not any(group.removable for group in plain.groups)
    assert all(kept for kept, _ in plain.widths(np.zeros(plain.num_genes)).values())


def test_a_population_is_priced_as_each_of_its_genomes():
    _, graph, genome = thin_resnet()
    population = np.stack([genome, graph.full_genome(), emptying(graph, removable(graph)), genome])
    assert graph.flops(population).tolist() == [graph.flops(each) for each in population]
    assert graph.params(population).tolist() == [graph.params(each) for each in population]


def test_a_thin_network_can_be_looked_at_and_cut_again():
    _, graph, genome = thin_resnet()
    thin = graph.prune(genome)
    again = ChannelGraph(thin, torch.zeros(1, 3, 8, 8), depth=True)
    assert len(removable(again)) == 7
    further = emptying(again, removable(again)[:2])
    check_emptied(again, thin, torch.randn(1, 3, 8, 8), further)


def test_scripting_exporting_and_copying_go_on_working():
    _, graph, genome = thin_resnet()
    thin, image = graph.prune(genome).eval(), torch.randn(2, 3, 8, 8)
    expected = thin(image)
    assert torch.equal(copy.deepcopy(thin)(image), expected)
    assert torch.equal(torch.jit.trace(thin, image)(image), expected)
    exported = torch.export.export(thin, (image,))
    assert torch.allclose(exported.module()(image), expected)


def test_a_recipe_says_what_was_lost_and_old_ones_do_not():
    model, graph, genome = thin_resnet()
    recipe = graph.recipe(genome)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.answers == {"layer1.1.bn2": "layer1.1.conv2", "layer3.2.bn2": "layer3.2.conv2"}
    assert "layer1.1.conv1" in recipe.hollow
    assert "hollow" not in graph.recipe(graph.full_genome()).to_json()
    image = torch.randn(1, 3, 8, 8)
    assert torch.equal(cut(model, recipe)(image), graph.prune(genome)(image))


@pytest.mark.parametrize(
    "kind", [nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, ceil_mode=True)]
)
def test_stand_ins_can_be_scripted(kind):
    image, extents = torch.zeros(2, 3, 9, 9), Extents.of(kind)
    for module in (Hollow(extents), Answer(torch.ones(4), extents)):
        assert torch.equal(torch.jit.script(module)(image), module(image))


class Beside(nn.Module):
    """Two branches, one of which must stay, and the first through something that refuses empty tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.coarse = nn.Conv2d(4, 5, 3, stride=2, padding=1)
        self.fine = nn.Conv2d(4, 6, 3, padding=1)
        self.out = nn.Conv2d(11, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        coarse = nn.functional.interpolate(torch.relu(self.coarse(x)), scale_factor=2.0)
        out: torch.Tensor = self.out(torch.cat([coarse, self.fine(x)], dim=1))
        return out


def test_a_branch_is_not_allowed_to_go_because_another_went_in_its_place() -> None:
    torch.manual_seed(0)
    model, example = Beside().eval(), torch.randn(1, 3, 8, 8)
    graph = ChannelGraph(model, example, depth=True)
    assert [group.layers for group in graph.groups if group.removable] == [("fine",)]
    for group in graph.groups:
        genome = graph.full_genome()
        if group.prunable:
            genome[list(group.genes)] = False
        assert graph.verify(genome).holds
