"""Refit on every small network of the collection: what is whole stays, what is cut keeps its size."""

import numpy as np
import pytest
import torch

from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.models import create_model
from deeppruning.refitting import Reference, refit_with
from graph_checks import assert_untouched, call, snapshot
from graph_networks import NETWORKS

INPUTS = 24


def many(example, seed=0):
    """A batch in the form of the example."""
    generator = torch.Generator().manual_seed(seed)

    def batch(x):
        return torch.randn(INPUTS, *x.shape[1:], generator=generator)

    if isinstance(example, dict):
        return {name: batch(x) for name, x in example.items()}
    return tuple(map(batch, example)) if isinstance(example, tuple) else batch(example)


def built(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    model.eval()
    return model, example, ChannelGraph(model, example, depth=True)


QUICK = {
    "bottleneck_residual",
    "preactivation_residual",
    "dense_bottleneck_layer",
    "residual_of_sequences",
    "circular_and_reflected_padding",
    "conv3d",
    "grouped_few",
    "depthwise_multiplier",
    "several_inputs",
    "keyword_inputs",
    "residual_in_place",
    "residual_projection",
    "residual_pad_in_lambda_module",
    "unet",
    "attention",
    "batch_norm_without_affine",
    "shared_norm",
    "feature_output",
}
EACH = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]


@pytest.mark.parametrize("name", EACH)
def test_whole_it_stays_and_cut_it_is_refitted_the_same_way_twice(name):
    model, example, graph = built(name)
    inputs = many(example)
    with torch.no_grad():
        wanted = tensors_in(call(model, inputs))
    before = snapshot(model)
    state = torch.get_rng_state()
    reference = Reference.of(graph, inputs)
    whole = refit_with(reference, graph, graph.full_genome()).model
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for expected, found in zip(wanted, tensors_in(call(whole, inputs)), strict=True):
            scale = float(expected.abs().max()) + 1e-6
            assert float((found - expected).abs().max()) / scale < 2e-3
    genome = graph.repair(np.random.default_rng(1).random(graph.num_genes) < 0.6)
    twice = [refit_with(reference, graph, genome) for _ in range(2)]
    states = [done.model.state_dict() for done in twice]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert all(bool(torch.isfinite(value).all()) for value in states[0].values())
    assert sum(p.numel() for p in twice[0].model.parameters()) == graph.params(genome)
    with torch.no_grad():
        assert all(bool(torch.isfinite(out).all()) for out in tensors_in(call(twice[0].model, inputs)))
    assert_untouched(model, before)


def resnet_cut_at(layer):
    """ResNet20 without every second filter of one layer, and the original."""
    torch.manual_seed(0)
    model = create_model("resnet20").eval()
    graph = ChannelGraph(model, torch.zeros(1, 3, 16, 16))
    genome = graph.full_genome()
    genome[graph.layer_genes()[layer][::2]] = False
    return model, graph, genome


def test_what_runs_before_the_first_cut_stays_as_it_was():
    model, graph, genome = resnet_cut_at("layer2.1.conv1")
    thin = refit_with(Reference.of(graph, torch.randn(32, 3, 16, 16)), graph, genome).model.state_dict()
    first = list(thin).index("layer2.1.conv1.weight")
    for place, (name, value) in enumerate(model.state_dict().items()):
        if place < first:
            assert torch.equal(thin[name], value), name
        elif name.endswith("conv2.weight"):
            assert not torch.equal(thin[name], value), name


def test_where_only_silent_filters_were_cut_every_solution_is_what_was_there():
    model, graph, genome = resnet_cut_at("layer1.0.conv1")
    with torch.no_grad():
        model.layer1[0].bn1.weight[::2] = 0.0
        model.layer1[0].bn1.bias[::2] = 0.0
    graph = ChannelGraph(model, torch.zeros(1, 3, 16, 16))
    inputs = torch.randn(32, 3, 16, 16)
    thin = refit_with(Reference.of(graph, inputs), graph, genome).model
    with torch.no_grad():
        wanted, found = model(inputs), thin(inputs)
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 2e-3


LEFT = {
    "module_called_twice": "it is called 2 times",
    "shared_norm": "it is called 2 times",
    "shared_weights": "it shares its weight with another layer",
    "transposed": "it is a transposed convolution",
    "weight_parametrised": "its weight is computed from other parameters",
    "weight_norm_by_hook": "its weight is computed from other parameters",
    "weight_standardised": "it was not called as a module in the run",
    "weight_standardised_by_batch_norm": "its answers are not just its weight times its input",
    "bare_weights": None,
    "plain_chain": None,
    "batch_norm_without_statistics": None,
}


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_left_as_cut_is_said_with_the_reason(name):
    _, example, graph = built(name)
    left = refit_with(Reference.of(graph, many(example)), graph, graph.full_genome()).left
    assert set(left.values()) == ({LEFT[name]} if LEFT[name] else set())


PARTNERS = {
    "residual_identity": 1,
    "residual_in_place": 1,
    "residual_projection": 1,
    "residual_pad_in_lambda_module": 1,
    "plain_chain": 0,
    "unet": 0,
    "feature_output": 0,
}


@pytest.mark.parametrize("name", PARTNERS)
def test_layers_that_are_only_added_to_something_are_found(name):
    _, example, graph = built(name)
    layers = Reference.of(graph, many(example)).layers.values()
    assert sum(known.partner is not None for known in layers) == PARTNERS[name]
