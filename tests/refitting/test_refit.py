"""Refit: exact where it can be worked out by hand, never worse for a layer, and harmless to what is whole."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import deeppruning as dp
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.models import create_model
from deeppruning.refitting import Reference, refit_in_place, refit_with
from deeppruning.refitting.memory import CANDIDATES
from deeppruning.refitting.patches import Places, answers_at, patches_at
from deeppruning.refitting.solve import RIDGES, Fit
from graph_checks import assert_untouched, call, snapshot
from graph_networks import NETWORKS


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_least_squares_as_worked_out_by_hand():
    fit = Fit(inputs=1, outputs=1, intercept=False)
    fit.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [3.0]]))  # x'x = 5, x'y = 8
    assert fit.solve(torch.tensor([[0.0]]), ridge=0.0)[0].item() == pytest.approx(8 / 5, rel=1e-5)
    # Drawn towards 1 by ridge * x'x: (8 + 5 * 1) / (5 + 5).
    assert fit.solve(torch.tensor([[1.0]]), ridge=1.0)[0].item() == pytest.approx(1.3, rel=1e-5)
    line = Fit(inputs=1, outputs=1, intercept=True)
    line.add(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [3.0], [5.0]]))
    slope, offset = line.solve(torch.zeros(1, 1), ridge=0.0)
    assert (slope.item(), offset.item()) == pytest.approx((2.0, 1.0), rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 40),
    st.integers(1, 12),
    st.floats(0, 10),
    st.booleans(),
    st.booleans(),
)
def test_a_solution_is_never_further_from_what_is_wanted_than_the_start(
    seed, rows, inputs, ridge, offset, dead
):
    x, y = drawn(rows, inputs, seed=seed), drawn(rows, 3, seed=seed + 1)
    if dead:
        x[:, 0] = 0.0
    start = drawn(inputs, 3, seed=seed + 2)
    fit = Fit(inputs=inputs, outputs=3, intercept=offset)
    fit.add(x[: rows // 2], y[: rows // 2])
    fit.add(x[rows // 2 :], y[rows // 2 :])
    weights, offsets = fit.solve(start, ridge)

    def error(weights, offsets):
        return float((y.double() - x.double() @ weights.double() - offsets.double()).square().sum())

    best = (y - x @ start).mean(0) if offset else torch.zeros(3)
    assert error(weights, offsets if offset else torch.zeros(3)) <= error(start, best) * (1 + 1e-4) + 1e-6


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 30),
    st.integers(2, 20),
    st.booleans(),
    st.sampled_from([0.01, 0.1, 3]),
)
def test_few_rows_are_solved_as_the_equations_of_the_inputs_would_be(seed, inputs, rows, offset, ridge):
    x, y = drawn(2, rows, inputs, seed=seed).double(), drawn(2, rows, 3, seed=seed + 1).double()
    start = drawn(2, inputs, 3, seed=seed + 2).double()
    fit = Fit(inputs=inputs, outputs=3, intercept=offset, leading=(2,))
    fit.add(x[:, :1], y[:, :1])
    fit.add(x[:, 1:], y[:, 1:])
    weights, offsets = fit.solve(start, ridge)
    if offset:
        x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    gram = x.mT @ x
    added = (ridge + 1e-7) * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(inputs)
    wanted = start + torch.linalg.solve(gram + added, x.mT @ (y - x @ start))
    assert torch.allclose(weights, wanted, atol=1e-6)
    assert offsets.shape == (2, 3)
    answered = (x - x.mean(1, keepdim=True)) @ weights
    share = answered.square().sum(1) / (y - y.mean(1, keepdim=True)).square().sum(1)
    assert torch.allclose(fit.spread(weights), share, rtol=1e-5)


LAYERS = {
    "plain": (nn.Conv2d(4, 6, 3, padding=1), (5, 4, 9, 8)),
    "strided": (nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, bias=False), (5, 4, 9, 8)),
    "same": (nn.Conv2d(4, 6, 4, padding="same"), (5, 4, 9, 8)),
    "mirrored": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (5, 4, 9, 8)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (5, 4, 9, 8)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4), (5, 4, 9, 8)),
    "sequence": (nn.Conv1d(4, 6, 5, padding=2), (5, 4, 12)),
    "volume": (nn.Conv3d(2, 3, (1, 2, 3), stride=(1, 2, 1)), (5, 2, 4, 5, 6)),
    "linear": (nn.Linear(4, 6), (5, 4)),
    "tokens": (nn.Linear(4, 6), (5, 7, 4)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_patches_and_weights_give_what_the_layer_gives(kind):
    layer, shape = LAYERS[kind]
    x = drawn(*shape)
    y = layer(x)
    linear, groups = isinstance(layer, nn.Linear), getattr(layer, "groups", 1)
    extents = tuple(y.shape[1:-1] if linear else y.shape[2:])
    places = Places.draw(len(x), extents, 6, torch.Generator().manual_seed(1))
    patches = patches_at(layer, x, places)
    rows = patches.reshape(*patches.shape[:2], groups, -1)
    weight = layer.weight.reshape(groups, layer.weight.shape[0] // groups, -1)
    found = torch.einsum("npgu,gou->npgo", rows, weight).flatten(2)
    found = found if layer.bias is None else found + layer.bias
    assert torch.allclose(found, answers_at(y, places, channels_last=linear), atol=1e-5)
    assert len(set(places.numbers[0].tolist())) == places.numbers.shape[1]


LARGE = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("densenet50", "googlenet", "efficientnet_b0", "vgg16", "mobilenet_v2", "squeezenet")
]


@pytest.mark.parametrize("name", ["resnet20", *LARGE])
def test_an_uncut_network_stays_as_it_is(name):
    torch.manual_seed(0)
    size = 32 if name == "vgg16" else 8
    model = create_model(name, image_size=size).eval()
    before = snapshot(model)
    graph = ChannelGraph(model, torch.zeros(1, 3, size, size))
    images = drawn(24, 3, size, size)
    whole = refit_with(Reference.of(graph, images), graph, graph.full_genome()).model
    with torch.no_grad():
        expected, found = model(images), whole(images)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-3
    assert_untouched(model, before)


def test_a_thin_network_comes_nearer_to_the_original_and_the_same_way_every_time():
    torch.manual_seed(0)
    model = create_model("resnet20", image_size=16).eval()
    graph = ChannelGraph(model, torch.zeros(1, 3, 16, 16), depth=True)
    images, others = drawn(64, 3, 16, 16), drawn(64, 3, 16, 16, seed=9)
    genome = np.random.default_rng(0).random(graph.num_genes) < 0.7
    refitted = dp.refit(graph, genome, images)
    with torch.no_grad():
        wanted = model(others)
        cut = float((graph.prune(genome).eval()(others) - wanted).square().mean())
        solved = float((refitted(others) - wanted).square().mean())
    assert solved < cut / 10
    again = dp.refit(graph, genome, images)
    assert all(torch.equal(p, q) for p, q in zip(refitted.parameters(), again.parameters(), strict=True))


def test_every_layer_comes_nearer_to_its_own_answers():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 4, 1)
    )
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8))
    images = drawn(32, 3, 8, 8)
    reference = Reference.of(graph, images)
    genome = np.ones(graph.num_genes, dtype=bool)
    genome[[1, 3]] = False
    thin = refit_with(reference, graph, genome).model.eval()
    recipe = graph.recipe(genome)
    cut = graph.prune(genome).eval()
    x = images
    for place in (0, 2, 4):
        known = reference.layers[str(place)]
        kept = [np.asarray(recipe.kept[a]) for d, a in recipe.parameters.get(f"{place}.weight", ()) if d == 0]
        wanted = known.answers[..., kept[0]] if kept else known.answers
        x = thin[place - 1](x) if place else x

        def gap(layer, x=x, known=known, wanted=wanted):
            return float((answers_at(layer(x), known.places, channels_last=False) - wanted).square().sum())

        with torch.no_grad():
            assert gap(thin[place]) <= gap(cut[place]) * (1 + 1e-5) + 1e-6
            x = thin[place](x)


@pytest.mark.parametrize(
    "name", ["grouped_few", "unet", "gate_by_convolutions", "cat_dense", "several_inputs"]
)
def test_small_networks_of_all_sorts_are_refitted(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    graph = ChannelGraph(model, example, depth=True)
    inputs = tuple(drawn(24, *x.shape[1:], seed=n) for n, x in enumerate(tensors_in(example)))
    genome = np.random.default_rng(1).random(graph.num_genes) < 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left as cut is said
        thin = dp.refit(graph, genome, inputs)
    with torch.no_grad():
        assert all(bool(torch.isfinite(out).all()) for out in tensors_in(call(thin.eval(), inputs)))
    assert sum(p.numel() for p in thin.parameters()) == graph.params(genome)


def test_a_lost_branch_answers_with_its_mean():
    torch.manual_seed(0)
    model, example = NETWORKS["residual_identity"]()
    graph = ChannelGraph(model.eval(), example, depth=True)
    images = drawn(32, 3, 8, 8)
    genome = graph.full_genome()
    genome[list(next(group.genes for group in graph.groups if group.removable))] = False
    thin = dp.refit(graph, genome, images)
    answered = []
    model.body[1].register_forward_hook(lambda m, i, o: answered.append(o.mean((0, 2, 3))))
    with torch.no_grad():
        model(images)
    assert torch.allclose(thin.body[1].bias, answered[0], atol=1e-5)


def test_a_layer_too_large_for_the_full_solve_mixes_its_channels(monkeypatch):
    monkeypatch.setattr("deeppruning.refitting.reference.CANDIDATES", replace(CANDIDATES, full_solve=20))
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 12, 3), nn.ReLU(), nn.Conv2d(12, 4, 1)
    )
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8))
    genome = np.ones(graph.num_genes, dtype=bool)
    genome[[0, 5, 7]] = False
    images = drawn(64, 3, 8, 8)
    reference = Reference.of(graph, images)
    assert reference.layers["2"].reads is not None and reference.layers["4"].reads is None
    with torch.no_grad():
        wanted = model(images)
        gaps = [
            float((network(images) - wanted).square().mean())
            for network in (graph.prune(genome).eval(), refit_with(reference, graph, genome).model)
        ]
    assert gaps[1] < gaps[0]


def test_what_cannot_be_refitted_is_said():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 3, 3))
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8))
    with pytest.warns(UserWarning, match="1: it is a transposed convolution"):
        dp.refit(graph, graph.full_genome(), drawn(16, 3, 8, 8))


def test_bad_input_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 3))
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8))
    with pytest.raises(InputError, match="at least 16 inputs to learn from, got 3"):
        dp.refit(graph, graph.full_genome(), drawn(3, 3, 8, 8))
    with pytest.raises(InputError, match="ridge must be at least 0"):
        dp.refit(graph, graph.full_genome(), drawn(16, 3, 8, 8), ridge=-1.0)
    with pytest.raises(InputError, match="a genome of this network has 4 bits"):
        dp.refit(graph, [1, 0], drawn(16, 3, 8, 8))
    model[0].weight.data[0, 0, 0, 0] = float("nan")
    with pytest.raises(InputError, match="not finite"):
        dp.refit(graph, graph.full_genome(), drawn(16, 3, 8, 8))


def test_what_is_handed_back_is_never_further_from_the_original_than_the_cut():
    worse = 0
    for seed in range(6):
        torch.manual_seed(seed)
        widths = [3, 12, 12, 12, 6]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.SiLU())
            for a, b in itertools.pairwise(widths)
        ]
        graph = ChannelGraph(nn.Sequential(*layers).eval(), torch.zeros(1, 3, 8, 8))
        genome = np.random.default_rng(seed).random(graph.num_genes) < 0.25
        reference = Reference.of(graph, drawn(32, 3, 8, 8, seed=seed))
        cut, pass_alone = graph.prune(genome).eval(), graph.prune(genome).eval()
        refit_in_place(reference, graph, genome, pass_alone)
        done = refit_with(reference, graph, genome)
        gaps = [reference.gap(network) for network in (cut, pass_alone)]
        assert reference.gap(done.model) == pytest.approx(min(gaps), rel=1e-5)
        if gaps[1] > gaps[0]:
            worse += 1
            assert set(done.left.values()) == {"the plain cut is closer to the original"}
            assert all(map(torch.equal, cut.state_dict().values(), done.model.state_dict().values()))
    assert worse > 0  # norms that bring soft answers back to their strength, where no layer follows


def test_a_ridge_is_chosen_by_rows_that_were_held_out():
    """Few rows for many unknowns want a large ridge, many rows a small one."""
    rng = torch.Generator().manual_seed(0)
    wanted, chosen = torch.randn(20, 3, generator=rng), {}
    for rows in (12, 4000):
        halves = [Fit(inputs=20, outputs=3, intercept=True) for _ in range(2)]
        for half in halves:
            x = torch.randn(rows, 20, generator=rng)
            half.add(x, x @ wanted + 2 * torch.randn(rows, 3, generator=rng))
        chosen[rows] = halves[0].best_ridge(halves[1], wanted)
        halves[0].join(halves[1])
        assert halves[0].rows == 2 * rows
    assert chosen[12] == max(RIDGES) and chosen[4000] >= min(RIDGES)
    away = [Fit(inputs=20, outputs=3, intercept=False) for _ in range(2)]
    for half in away:
        x = torch.randn(4000, 20, generator=rng)
        half.add(x, x @ wanted)
    assert away[0].best_ridge(away[1], torch.zeros(20, 3)) == min(RIDGES)


def test_joined_fits_solve_as_one():
    rng = torch.Generator().manual_seed(1)
    for rows in (3, 40):  # fewer and more than there are unknowns
        x, y = torch.randn(2 * rows, 8, generator=rng), torch.randn(2 * rows, 2, generator=rng)
        whole, first, second = (Fit(inputs=8, outputs=2, intercept=True) for _ in range(3))
        whole.add(x, y)
        first.add(x[:rows], y[:rows])
        second.add(x[rows:], y[rows:])
        first.join(second)
        for one, other in zip(
            whole.solve(torch.zeros(8, 2), 0.1), first.solve(torch.zeros(8, 2), 0.1), strict=True
        ):
            assert torch.allclose(one, other, atol=1e-5)
