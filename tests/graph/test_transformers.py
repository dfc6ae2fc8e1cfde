"""Vision transformers: hidden units of MLPs can be cut, which is proven; attention stays whole."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import deeppruning as dp
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.searching.importance.evidence import gather_activations
from graph_checks import counted

WIDTH, HEADS, HIDDEN = 16, 2, 32
EXAMPLE = torch.zeros(1, 1, 8, 8)


class OneProduct(nn.Module):
    """Attention written out, with queries, keys and values from one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-2, -1) * (width // HEADS) ** -0.5, -1)
        return self.proj((scores @ v).transpose(1, 2).reshape(n, tokens, width))


class ThreeProducts(nn.Module):
    """As transformers writes it: three layers, and torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        parts = (layer(x) for layer in (self.query, self.key, self.value))
        heads = (part.view(n, -1, HEADS, width // HEADS).transpose(1, 2) for part in parts)
        return self.out(scaled_dot_product_attention(*heads).transpose(1, 2).reshape(n, tokens, width))


class TorchsOwn(nn.Module):
    """nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x, x, x, need_weights=False)[0]


class Block(nn.Module):
    """Attention and an MLP, each on its own norm and added."""

    def __init__(self, attention: type[nn.Module]) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), attention(), nn.LayerNorm(WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class TinyViT(nn.Module):
    """Patches, a class token, positions, two blocks, a head."""

    def __init__(self, attention: type[nn.Module]) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 2, stride=2)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.Sequential(Block(attention), Block(attention))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Encoder(nn.Module):
    """torch's own encoder, whose layers run as one kernel in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, WIDTH, 2, stride=2)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


KINDS = {
    "one product": (lambda: TinyViT(OneProduct), "fc1", "attention.qkv"),
    "three products": (lambda: TinyViT(ThreeProducts), "fc1", "attention.key"),
    "torch's own": (lambda: TinyViT(TorchsOwn), "fc1", "attention.mix.in_proj_weight"),
    "encoder": (Encoder, "linear1", "self_attn.in_proj_weight"),
}


RARE = ("one product", "torch's own")


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[pytest.mark.slow] if kind in RARE else []) for kind in KINDS],
)
def vit(request):
    torch.manual_seed(0)
    build, hidden, attention = KINDS[request.param]
    model = build().eval()
    return dp.ChannelGraph(model, EXAMPLE, prune_linear=True), model, hidden, attention


def test_hidden_units_of_mlps_can_be_cut_and_it_is_proven(vit):
    graph, model, hidden, _ = vit
    free = {name: genes for name, genes in graph.layer_genes().items() if max(genes) >= 0}
    assert [name.rpartition(".")[2] for name in free] == [hidden] * 2
    assert sorted(gene for genes in free.values() for gene in genes) == list(range(2 * HIDDEN))
    genome = np.random.default_rng(0).random(graph.num_genes) < 0.5
    assert graph.verify(genome).holds
    thin = graph.prune(genome)
    assert graph.flops(genome) == counted(thin, EXAMPLE) < graph.flops(graph.full_genome())
    assert graph.params(genome) == sum(parameter.numel() for parameter in thin.parameters())
    assert graph.flops(graph.full_genome()) == counted(model, EXAMPLE)


def test_attention_stays_whole_and_the_table_says_so(vit):
    graph, _, hidden, attention = vit
    rows = str(graph).splitlines()
    kept = [row.split() for row in rows if row.split()[:1] and row.split()[0].endswith(attention)]
    assert len(kept) == 2 and all(row[3] == "0" for row in kept)
    assert all("stays whole" in row for row in rows if row.split()[:1] and row.split()[0].endswith(attention))
    cut = [row for row in rows if row.split()[:1] and row.split()[0].endswith(hidden)]
    assert len(cut) == 2 and all("linear" in row for row in cut)


def test_a_search_prunes_mlps_where_it_is_asked_to(vit):
    _, model, hidden, _ = vit
    inputs = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with pytest.raises(InputError, match=r"give prune_linear \(--prune-linear\)"):
        dp.search(model, inputs)
    options = {"offspring": 2, "generations": 1, "low": 0.6, "high": 0.95, "bins": 3}
    front = dp.search(model, inputs, search=dp.SearchConfig(prune_linear=True, **options), workers=1)
    thin = front.light.model
    found = [len(bias) for name, bias in thin.named_parameters() if name.endswith(f"{hidden}.bias")]
    assert sum(found) < 2 * HIDDEN and front.light.flops < front.original_flops
    with torch.no_grad():
        assert thin(inputs).shape == (64, 10) and bool(thin(inputs).isfinite().all())


def test_activations_of_hidden_units_are_told_apart(vit):
    graph, _, _, _ = vit
    images = ImageSet(torch.randn(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64), ("a",))
    found = gather_activations(graph, images)
    assert found.pooled.shape == (4, 2 * HIDDEN) and len(set(found.mean.tolist())) == 2 * HIDDEN
