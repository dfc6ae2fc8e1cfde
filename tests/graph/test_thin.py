"""Thin networks are ordinary ones: scripted, exported, copied, cut again; bad input is refused."""

import copy
import doctest
import importlib
import io
import json
import pkgutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning.graph
from deeppruning.errors import GraphError, InputError, WeightsError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.cut.duplicate import duplicate
from deeppruning.graph.cut.hollow import Reindexed
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.models import create_model
from deeppruning.training.weights import load_weights
from graph_networks import NETWORKS, Net, block, conv, head

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES = torch.zeros(2, 3, 8, 8)
RESNET56 = Path(__file__).parents[3] / "shared" / "weights" / "resnet56-4bfd9763.th"


def half(graph: ChannelGraph) -> np.ndarray:
    return np.random.default_rng(1).random(graph.num_genes) < 0.5


def thin_resnet(shortcut: str = "pad") -> nn.Module:
    torch.manual_seed(0)
    graph = ChannelGraph(create_model("resnet20", image_size=8, shortcut=shortcut), IMAGES[:1])
    return graph.prune(half(graph)).eval()


def test_a_thin_network_is_scripted():
    thin, images = thin_resnet(), torch.randn(2, 3, 8, 8)
    scripted = torch.jit.script(thin)
    assert torch.allclose(scripted(images), thin(images), atol=1e-6)


@pytest.mark.slow
def test_a_thin_network_is_exported():
    thin, images = thin_resnet(), torch.randn(2, 3, 8, 8)
    exported = torch.export.export(thin, (images,)).module()
    assert torch.allclose(exported(images), thin(images), atol=1e-6)


def test_a_thin_network_is_saved_and_copied():
    thin, images = thin_resnet(), torch.randn(2, 3, 8, 8)
    file = io.BytesIO()
    torch.save(thin.state_dict(), file)
    twin = copy.deepcopy(thin)
    for parameter in twin.parameters():
        parameter.data.zero_()
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(twin(images), thin(images))
    moved = copy.deepcopy(thin).double().to("cpu")
    assert moved(images.double()).dtype == torch.float64


@pytest.mark.parametrize(
    "name", ["residual_pad_in_lambda_module", "shuffle_unit", "grouped_few", "group_norm_many"]
)
def test_a_thin_network_is_cut_again(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    for _ in range(3):
        graph = ChannelGraph(model, example)
        genome = np.random.default_rng(2).random(graph.num_genes) < 0.8
        assert graph.verify(genome).holds
        thin = graph.prune(genome)
        assert graph.params(genome) == sum(p.numel() for p in thin.parameters())
        model = thin
    wrappers = [module for module in model.modules() if isinstance(module, Reindexed)]
    assert not any(isinstance(module.inner, Reindexed) for module in wrappers)


def test_a_padded_shortcut_that_was_wrapped_stays_fully_prunable():
    thin = thin_resnet()
    widths = [
        p.shape[0] for n, p in thin.named_parameters() if n in ("conv1.weight", "layer3.0.conv2.weight")
    ]
    again = ChannelGraph(thin, IMAGES[:1])
    assert all(group.prunable for group in again.groups)
    second = [len(group.genes) for group in again.groups if group.string == "second"]
    assert [second[0], second[-1]] == widths


def test_cutting_uses_the_weights_of_the_moment():
    model, example = NETWORKS["plain_chain"]()
    graph = ChannelGraph(model, example)
    with torch.no_grad():
        model[0][0].weight.fill_(3.0)
    assert graph.prune(graph.full_genome())[0][0].weight.unique().tolist() == [3.0]


@pytest.mark.parametrize("kind", ["attribute", "buffer"])
@pytest.mark.parametrize("already_run", [False, True])
def test_what_a_network_keeps_of_a_run_is_not_taken_over_into_a_cut(kind, already_run):
    torch.manual_seed(0)
    model, example = NETWORKS[f"cached_{kind}_in_evaluation"]()
    images = torch.randn(2, 3, 8, 8)
    if already_run:
        model.eval()(images)
        kept = model.scale.cache
    modes = [module.training for module in model.modules()]
    graph = ChannelGraph(model, example)
    assert ties_of(graph) == [["stem.0"], ["tail.0"]]
    genome = np.arange(14) % 2 == 0
    assert graph.verify(genome).difference < 1e-10
    thin = graph.prune(genome)
    assert [module.training for module in thin.modules()] == modes
    assert thin.eval()(images).shape == (2, 5)
    assert thin.scale.cache.shape == (4, 1, 1)
    assert torch.equal(thin.scale.cache.flatten(), thin.scale.log.exp())
    if already_run:  # the network itself is left as it was
        assert model.scale.cache is kept and [module.training for module in model.modules()] == modes
    again = ChannelGraph(thin, example)  # and so is a thin one that was run
    assert again.num_genes == 4 + 3 and again.verify(again.full_genome()).holds


def ties_of(graph: ChannelGraph) -> list[list[str]]:
    return [list(group.layers) for group in graph.groups if group.prunable]


def test_hooks_and_shared_modules_survive_a_cut():
    model, example = NETWORKS["same_module_under_two_names"]()
    thin = ChannelGraph(model, example).prune(np.arange(14) % 2 == 0)
    assert thin.one is thin.two
    model, example = NETWORKS["shared_weights"]()
    thin = ChannelGraph(model, example).prune(np.arange(14) % 2 == 0)
    assert thin.one.weight is thin.two.weight and tuple(thin.one.weight.shape[:2]) == (4, 4)
    model, example = NETWORKS["hooks_on_model"]()
    thin = ChannelGraph(model, example).prune(np.arange(14) % 2 == 0)
    assert len(thin[0]._forward_hooks) == 1 and thin[0]._forward_hooks is not model[0]._forward_hooks


def test_a_quick_copy_is_a_deep_copy():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = conv(3, 4)
            self.notes, self.again = {"a": [1, 2]}, self.layer
            self.call = self.forward

        def forward(self, x):
            return self.layer(x)

    model = nn.Sequential(Own(), nn.MultiheadAttention(4, 2))
    twin = duplicate(model, {})
    assert twin[0].again is twin[0].layer is not model[0].layer
    assert twin[0].notes == {"a": [1, 2]} and twin[0].notes["a"] is not model[0].notes["a"]
    assert twin[0].call.__self__ is twin[0]
    assert not {id(p) for p in twin.parameters()} & {id(p) for p in model.parameters()}


def test_a_recipe_is_read_back_and_a_spoilt_one_refused():
    model, example = NETWORKS["residual_pad_in_lambda_module"]()
    graph = ChannelGraph(model, example)
    recipe = graph.recipe(half(graph))
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert hash(Recipe.from_json(recipe.to_json())) == hash(recipe)
    for text in ("", "[]", "{}", recipe.to_json().replace('"widths":[', '"widths":[-1,'), '{"kept":[[1,0]]}'):
        with pytest.raises(WeightsError, match="cannot be read"):
            Recipe.from_json(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": [[1, 0]]}, "must rise"),
        ({"kept": [[1, 1]]}, "must rise"),
        ({"kept": [[0, 3]]}, "stay below 3"),
        ({"kept": [[0], [0]]}, "as many kept lists as widths"),
        ({"parameters": {"conv.weight": [[0, 1]]}}, "a strip that is not listed"),
        ({"norms": {"norm": [[0, 7]]}}, "a strip that is not listed"),
        ({"detached": {"pad": [None, 1]}}, "a strip that is not listed"),
        ({"grouped": {"conv.weight": 0}}, "groups of no rows"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(change, message):
    sound = Recipe(kept=((0, 2),), widths=(3,), parameters={"conv.weight": ((0, 0),)}).to_json()
    assert Recipe.from_json(sound).kept[0].tolist() == [0, 2]
    with pytest.raises(WeightsError, match=message):
        Recipe.from_json(json.dumps({**json.loads(sound), **change}))


@pytest.mark.parametrize("training", [True, False])
def test_a_re_indexed_module_keeps_its_mode(training):
    model, example = NETWORKS["blur_of_fixed_width"]()
    graph = ChannelGraph(model, example)
    model.blur.train(training)  # apart from the rest of the network, which is in training mode
    thin = graph.prune(np.arange(14) % 2 == 0)
    assert isinstance(thin.blur, Reindexed)
    assert [module.training for module in thin.blur.modules()] == [training] * 2
    assert thin.stem.training
    assert [module.training for module in thin.train(not training).blur.modules()] == [not training] * 2


@pytest.mark.skipif(not RESNET56.is_file(), reason="the public ResNet56 weights are not at hand")
def test_the_real_resnet56_is_cut_without_loss_of_meaning():
    model = create_model("resnet56")
    load_weights(model, RESNET56)
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32))
    assert graph.num_genes == (9 + 1) * (16 + 32 + 64)
    assert graph.flops(graph.full_genome()) == 125_485_696
    for share in (0.2, 0.9):
        genome = np.random.default_rng(0).random(graph.num_genes) < share
        assert graph.verify(genome).difference < 1e-10
    images = torch.randn(4, 3, 32, 32)
    full = graph.prune(graph.full_genome()).eval()
    assert torch.allclose(full(images), model.eval()(images), atol=1e-4)


# Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("genome", "message"),
    [
        (np.ones(13), r"has 14 bits .* got shape \(13,\)"),
        (np.ones((2, 2, 14)), r"got shape \(2, 2, 14\)"),
        ("10101010101010", r"got shape \(\)"),
        (np.full(14, 0.5), "only 0 and 1"),
        (np.full(14, 2), "only 0 and 1"),
        (["a"] * 14, "only 0 and 1"),
    ],
)
def test_a_wrong_genome_is_refused(genome, message):
    graph = ChannelGraph(*NETWORKS["plain_chain"]())
    for use in (graph.prune, graph.flops, graph.params, graph.repair, graph.verify):
        with pytest.raises(InputError, match=message):
            use(genome)


def test_a_population_is_refused_where_one_genome_is_needed():
    graph = ChannelGraph(*NETWORKS["plain_chain"]())
    with pytest.raises(InputError, match=r"one genome is needed here, got a population of shape \(3, 14\)"):
        graph.prune(np.ones((3, 14)))
    bits = graph.prune(torch.ones(14, dtype=torch.bool))
    assert sum(p.numel() for p in bits.parameters()) == graph.params([1] * 14)


def test_the_networks_own_error_is_passed_on():
    model, _ = NETWORKS["plain_chain"]()
    with pytest.raises(
        GraphError, match=r"running the network once on the example input failed: .*3 channels"
    ):
        ChannelGraph(model, torch.zeros(1, 4, 8, 8))
    with pytest.raises(InputError, match="example_input must be a tensor"):
        ChannelGraph(model, "an image")
    with pytest.raises(InputError, match=r"must be a torch\.nn\.Module, got str"):
        ChannelGraph("resnet56", IMAGES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="min_channels must be a whole number of at least 1, got 0"):
        ChannelGraph(model, IMAGES, min_channels=0)


def test_a_network_without_convolutions_is_refused():
    with pytest.raises(GraphError, match="Sequential runs no convolution on this input"):
        ChannelGraph(nn.Sequential(nn.Flatten(), nn.Linear(192, 4)), IMAGES)


@pytest.mark.parametrize("draw", [lambda: torch.rand(()).item(), np.random.rand], ids=["torch", "numpy"])
def test_a_network_of_random_structure_is_refused(draw):
    model = Net(
        lambda net, x: net.head(net.stem(x) * 2 if draw() < 0.5 else net.stem(x)),
        stem=block(3, 4),
        head=head(4),
    )
    with pytest.raises(GraphError, match="draws its structure at random"):
        ChannelGraph(model, IMAGES)


def test_networks_that_no_cut_can_be_made_of_are_refused():
    plain = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 2))
    with pytest.raises(GraphError, match="TorchScript"):
        ChannelGraph(torch.jit.script(plain), IMAGES)
    with pytest.raises(GraphError, match="Sequential, at 0, is a TorchScript module"):
        ChannelGraph(nn.Sequential(torch.jit.script(conv(3, 4)), conv(4, 2)), IMAGES)
    with pytest.raises(GraphError, match="lazy parameters"):
        ChannelGraph(nn.Sequential(nn.LazyConv2d(4, 3), conv(4, 2)), IMAGES)
    kept = nn.Sequential(conv(3, 4), conv(4, 2))
    kept.lock = threading.Lock()
    with pytest.raises(GraphError, match="cannot be copied"):
        ChannelGraph(kept, IMAGES)


COMPUTED = ("weight_pruned_by_torch", "weight_norm_by_hook", "weight_norm_depthwise", "weight_parametrised")


@pytest.mark.parametrize("name", COMPUTED)
def test_layers_with_computed_weights_hold_their_thin_sizes_and_can_be_cut_again(name):
    model, example = NETWORKS[name]()
    graph = ChannelGraph(model, example)
    thin = graph.prune(np.arange(graph.num_genes) % 3 > 0)
    kept, _ = graph.widths(np.arange(graph.num_genes) % 3 > 0)["1"]
    assert thin[1].out_channels == len(thin[1].weight) == kept < model[1].out_channels
    assert thin[1].in_channels == thin[0][0].out_channels
    assert model[1].groups == 1 or thin[1].groups == kept
    again = ChannelGraph(thin, example)
    assert again.num_genes == int((np.arange(graph.num_genes) % 3 > 0).sum())
    assert again.verify(half(again)).difference < 1e-12


def test_a_result_kept_as_an_attribute_does_no_harm():
    kept = nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 2))
    kept.last = kept(IMAGES)
    graph = ChannelGraph(kept, IMAGES)
    assert graph.verify(half(graph)).holds
    assert torch.equal(graph.prune(half(graph)).last, kept.last) and kept.last.requires_grad


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_other_precisions_are_kept(kind):
    model, example = NETWORKS["plain_chain"]()
    graph = ChannelGraph(model.to(kind), example.to(kind))
    assert graph.verify(half(graph)).holds
    assert {p.dtype for p in graph.prune(half(graph)).parameters()} == {kind}


def test_odd_tensors_do_no_harm():
    model, example = NETWORKS["plain_chain"]()
    model.register_buffer("complex", torch.ones(3, dtype=torch.complex64))
    model.register_buffer("whole", torch.arange(3))
    model.register_buffer("quantised", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    graph = ChannelGraph(model, example)
    assert graph.verify(half(graph)).holds
    assert graph.prune(half(graph)).whole.tolist() == [0, 1, 2]


def test_a_proof_that_fails_stops_the_cut(monkeypatch):
    graph = ChannelGraph(*NETWORKS["plain_chain"]())
    assert graph.prune(half(graph), verify=True) is not None
    graph._built.genes[graph._built.genes >= 0] = -1  # as if nothing were masked
    with pytest.raises(GraphError, match="does not equal"):
        graph.prune(half(graph), verify=True)


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.walk_packages(deeppruning.graph.__path__, "deeppruning.graph.")]
)
def test_examples_in_docstrings_hold(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0
