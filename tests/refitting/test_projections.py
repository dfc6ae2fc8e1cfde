"""Output projections of nn.MultiheadAttention, which torch does not call, are refitted like other layers."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.graph.cut.multihead import ThinMultiheadAttention
from deeppruning.refitting import Reference, refit_with
from deeppruning.refitting.projections import CallingAttention, projections_called

WIDTH, HEADS, TOKENS, BATCH = 12, 3, 4, 5


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """Attention beside a shortcut, between two layers."""

    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.embed, self.top = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 5)
        self.mix = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.top((x + self.mix(x, x, x, need_weights=False)[0]).tanh())


def graph_of(model: nn.Module) -> dp.ChannelGraph:
    return dp.ChannelGraph(model, torch.zeros(1, TOKENS, 6), exclude=["embed"], prune_heads=True)


def net(**options: bool) -> Net:
    torch.manual_seed(0)
    return Net(**options).eval()


def masks(kind: str) -> dict[str, Tensor]:
    causal = torch.ones(TOKENS, TOKENS).triu(1).bool()
    return {
        "none": {},
        "causal": {"attn_mask": causal},
        "of each head": {"attn_mask": drawn(BATCH * HEADS, TOKENS, TOKENS)},
        "padding": {"key_padding_mask": torch.arange(TOKENS).expand(BATCH, -1) > 2, "attn_mask": causal},
    }[kind]


@pytest.mark.parametrize("kind", ["none", "causal", "of each head", "padding"])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_that_calls_its_projection_gives_the_same_results(kind, need_weights, batch_first):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first).eval()
    nn.init.normal_(attention.out_proj.bias)
    first, second = (BATCH, TOKENS) if batch_first else (TOKENS, BATCH)
    x, seen = drawn(first, second, WIDTH), []
    with torch.no_grad():
        wanted = attention(x, x, x, need_weights=need_weights, **masks(kind))
        with projections_called(attention):
            attention.out_proj.register_forward_hook(lambda m, i, o: seen.append(i[0].shape))
            found = attention(x, x, x, need_weights=need_weights, **masks(kind))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert seen == [(BATCH, TOKENS, WIDTH)]
    assert type(attention) is nn.MultiheadAttention and attention._qkv_same_embed_dim


def test_without_a_batch_it_gives_the_same_results_too():
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(WIDTH, HEADS), drawn(TOKENS, WIDTH)
    wanted = attention(x, x, x)
    with projections_called(attention):
        torch.testing.assert_close(attention(x, x, x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("genome", [[True, False, True], [False, False, True]])
def test_its_projection_is_the_least_squares_solution(genome):
    """With every position recorded and a tiny ridge, no other projection comes closer to the original's."""
    model, inputs = net(), drawn(64, TOKENS, 6)
    graph = graph_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as: left as cut, not refitted
        thin = dp.refit(graph, np.array(genome), inputs, ridge=1e-6)
    reads, answers = [], []
    with torch.no_grad():
        for network, kept in ((thin, reads), (copy.deepcopy(model), answers)):
            with projections_called(network):
                projection = network.mix.out_proj
                projection.register_forward_hook(
                    lambda m, i, o, kept=kept: kept.append((i[0].flatten(0, 1), o.flatten(0, 1)))
                )
                network(inputs)
    x = torch.cat([reads[0][0], torch.ones(64 * TOKENS, 1)], 1).double()
    wanted = answers[0][1].double()
    best = x @ torch.linalg.lstsq(x, wanted).solution
    least = float((best - wanted).square().sum())
    assert least > 0.1
    assert float((reads[0][1].double() - wanted).square().sum()) == pytest.approx(least, rel=1e-3)
    assert type(thin.mix) is ThinMultiheadAttention
    assert sum(genome) * 4 == thin.mix.out_proj.in_features


def test_networks_keep_their_classes_and_come_closer_than_without_it():
    model, inputs = net(), drawn(64, TOKENS, 6)
    graph, genome = graph_of(model), np.array([True, False, True])
    reference = Reference.of(graph, inputs)
    assert "mix.out_proj" in reference.layers
    assert not any(isinstance(module, CallingAttention) for module in reference.model.modules())
    done = refit_with(reference, graph, genome)
    assert done.left == {} and type(done.model.mix) is ThinMultiheadAttention
    reference.layers.pop("mix.out_proj")
    without = refit_with(reference, graph, genome).model
    with torch.no_grad():
        near, far = (float((each(inputs) - model(inputs)).square().sum()) for each in (done.model, without))
    assert near < 0.9 * far


def test_what_torch_reads_in_another_way_is_left_as_cut():
    model, hooked = net(add_zero_attn=True), net()
    hooked.mix.out_proj.register_forward_hook(lambda m, i, o: 2 * o)  # torch does not run it
    for each in (model, hooked):
        reference = Reference.of(graph_of(each), drawn(32, TOKENS, 6))
        assert reference.left["mix.out_proj"] == "it was not called as a module in the run"
        assert "top" in reference.layers
