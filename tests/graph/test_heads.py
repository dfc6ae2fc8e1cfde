"""Heads of attention as genes, however attention is written: cut, proven, refitted and saved."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import deeppruning as dp
from deeppruning.errors import WeightsError
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from graph_checks import counted, train_one_step

HEADS, EACH = 3, 4  # channels of a head
WIDTH = HEADS * EACH
EXAMPLE = torch.zeros(1, 1, 8, 8)


class Packed(nn.Module):
    """As timm writes it: queries, keys and values by one layer, torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.attn_dim = HEADS, EACH, WIDTH
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        shape = (*x.shape[:2], 3, self.num_heads, self.head_dim)
        return self.qkv(x).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor) -> Tensor:
        mixed = scaled_dot_product_attention(*self.parts(x))
        return self.proj(mixed.transpose(1, 2).reshape(*x.shape[:2], self.attn_dim))


class WrittenOut(Packed):
    """Two products and a softmax, with a bias for each head that is looked up, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, HEADS))
        places = torch.arange(4)
        self.register_buffer("index", places[:, None] - places + 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        bias = self.table[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1).contiguous()
        scores = (q * EACH**-0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)
        mixed = scores.softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


class Windows(WrittenOut):
    """As in Swin: tokens are rolled, attention runs in windows of four, a mask separates what was apart.

    Five windows, so that no two sizes are the same: it would be open which of them is that of the heads.
    """

    def __init__(self) -> None:
        super().__init__()
        mask = torch.zeros(5, 4, 4)
        mask[-1, :3, 3] = mask[-1, 3, :3] = -100.0
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        many = torch.cat([x] * 5, 1)
        windows = torch.roll(many, -1, dims=1).view(-1, 4, x.shape[2])
        q, k, v = self.parts(windows)
        bias = self.table[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1).unsqueeze(0)
        scores = (q * EACH**-0.5) @ k.transpose(-2, -1) + bias
        scores = scores.view(-1, 5, self.num_heads, 4, 4) + self.mask.unsqueeze(1).unsqueeze(0)
        mixed = scores.view(-1, self.num_heads, 4, 4).softmax(-1) @ v
        mixed = self.proj(mixed.transpose(1, 2).reshape(*windows.shape[:2], -1))
        return torch.roll(mixed.view(many.shape), 1, dims=1)[:, : x.shape[1]]


class ThreeLayers(nn.Module):
    """As transformers writes it: a layer each for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.num_attention_heads, self.attention_head_size, self.all_head_size = HEADS, EACH, WIDTH
        self.query, self.key, self.value, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], self.num_attention_heads, self.attention_head_size)
        parts = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = scaled_dot_product_attention(*parts).transpose(1, 2)
        return self.proj(mixed.reshape(*x.shape[:-1], self.all_head_size))


class TorchsOwn(nn.Module):
    """nn.MultiheadAttention, with or without the weights it can return."""

    def __init__(self, *, need_weights: bool = False) -> None:
        super().__init__()
        self.mix, self.need_weights = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x, x, x, need_weights=self.need_weights)[0]


class Encoder(nn.Module):
    """A layer of torch's encoder, which torch would run as one kernel where the number of heads is even."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class ByWidth(Packed):
    """The width of a head is computed from that of the input, which a cut of heads leaves as it is."""

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        shape = (*x.shape[:2], 3, self.num_heads, x.shape[2] // self.num_heads)
        return self.qkv(x).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)


class Net(nn.Module):
    """Four patches, attention beside a shortcut, a layer on top."""

    def __init__(self, attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 4, stride=4)
        self.norm, self.attn = nn.LayerNorm(WIDTH), attention()
        self.hidden, self.top = nn.Linear(WIDTH, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.attn(self.norm(x))
        return self.top(self.hidden(x).relu().mean(1))


STYLES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "packed": (Packed, "attn.proj.weight"),
    "written out": (WrittenOut, "attn.proj.weight"),
    "windows": (Windows, "attn.proj.weight"),
    "three layers": (ThreeLayers, "attn.proj.weight"),
    "torch's own": (TorchsOwn, "attn.mix.out_proj.weight"),
    "encoder": (Encoder, "attn.layer.self_attn.out_proj.weight"),
    "torch's own with weights": (lambda: TorchsOwn(need_weights=True), "attn.mix.out_proj.weight"),
}


def graph_of(attention: Callable[[], nn.Module], **options: bool) -> tuple[dp.ChannelGraph, nn.Module]:
    torch.manual_seed(0)
    model = Net(attention).eval()
    return dp.ChannelGraph(model, EXAMPLE, exclude=["patch"], **options), model


@pytest.fixture(scope="module", params=STYLES)
def headed(request):
    attention, projection = STYLES[request.param]
    return *graph_of(attention, prune_heads=True), projection


def images(count: int) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_each_head_is_a_gene_and_its_cut_equals_silencing_it(headed):
    graph, model, projection = headed
    assert graph.num_genes == HEADS
    genome = np.array([True, False, True])
    assert graph.verify(genome).holds
    silenced = copy.deepcopy(model)
    with torch.no_grad():
        silenced.get_parameter(projection)[:, EACH : 2 * EACH] = 0
        thin, inputs = graph.prune(genome), images(4)
        torch.testing.assert_close(thin(inputs), silenced(inputs), rtol=1e-4, atol=1e-5)
        assert float((thin(inputs) - model(inputs)).abs().max()) > 1e-3
    assert thin.get_parameter(projection).shape == (WIDTH, 2 * EACH)
    assert graph.params(genome) == sum(parameter.numel() for parameter in thin.parameters())
    assert graph.flops(genome) == counted(thin, EXAMPLE) < graph.flops(graph.full_genome())
    assert graph.flops(graph.full_genome()) == counted(model, EXAMPLE)


def test_one_head_stays_and_the_rest_can_be_trained(headed):
    graph, _, projection = headed
    none = np.zeros(HEADS, dtype=np.bool_)
    assert graph.repair(none).tolist() == [True, False, False] and graph.verify(none).holds
    thin = graph.prune(none)
    assert thin.get_parameter(projection).shape == (WIDTH, EACH)
    train_one_step(thin, images(2))


def test_a_thin_network_is_saved_loaded_pickled_and_cut_again(headed, tmp_path: Path):
    graph, model, _ = headed
    genome = np.array([False, True, True])
    thin, inputs = graph.prune(genome), images(3)
    path = dp.save(thin, tmp_path / "thin.safetensors", graph, genome)
    assert torch.equal(dp.load(path, copy.deepcopy(model))(inputs), thin(inputs))
    assert torch.equal(pickle.loads(pickle.dumps(thin))(inputs), thin(inputs))
    again = dp.ChannelGraph(thin, EXAMPLE, exclude=["patch"], prune_heads=True)
    assert again.num_genes == 2 and again.verify([True, False]).holds
    assert again.flops([True, False]) == graph.flops([False, True, False])


def test_the_sizes_that_a_module_stores_follow_its_heads():
    graph, model = graph_of(Packed, prune_heads=True)
    recipe = graph.recipe([True, False, True])
    thin = cut(model, Recipe.from_json(recipe.to_json()))
    assert (thin.attn.num_heads, thin.attn.head_dim, thin.attn.attn_dim) == (2, EACH, 2 * EACH)
    assert thin.attn.qkv.out_features == 6 * EACH and thin.attn.proj.in_features == 2 * EACH
    assert graph.layer_genes()["attn.qkv"] == np.tile(np.repeat(range(HEADS), EACH), 3).tolist()
    model.attn.num_heads = 6
    with pytest.raises(WeightsError, match="sets num_heads of attn, which is not 3 in this network"):
        cut(model, recipe)


def test_a_refit_makes_up_for_lost_heads():
    graph, model = graph_of(Packed, prune_heads=True)
    genome, inputs = np.array([True, False, True]), images(64)
    with torch.no_grad():
        gaps = [
            float((network(inputs) - model(inputs)).square().sum())
            for network in (graph.prune(genome), dp.refit(graph, genome, inputs))
        ]
    assert gaps[1] < 0.5 * gaps[0]


def test_without_being_asked_for_attention_stays_whole():
    graph, _ = graph_of(Packed)
    assert graph.num_genes == 0 and '"sizes"' not in graph.recipe([]).to_json()
    linear, _ = graph_of(Packed, prune_linear=True)
    assert {name for name, genes in linear.layer_genes().items() if max(genes) >= 0} == {"hidden"}
    both, _ = graph_of(Packed, prune_linear=True, prune_heads=True)
    assert both.num_genes == HEADS + 6 and both.verify(np.arange(HEADS + 6) % 2 == 0).holds


def test_what_cannot_be_cut_stays_whole_and_says_why():
    graph, _ = graph_of(ByWidth, prune_heads=True)
    assert graph.num_genes == 0
    row = next(row for row in str(graph).splitlines() if row.startswith("attn.qkv"))
    assert "view in attn: a size or order is written into the code" in row or "reshape in attn" in row
