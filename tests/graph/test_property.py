"""What must hold for every network and every genome: the cut runs, trains, is proven and priced exactly."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.models import create_model, list_models
from graph_checks import (
    assert_untouched,
    call,
    check_cut,
    counted,
    every_nth,
    filled,
    snapshot,
    train_one_step,
)
from graph_networks import NETWORKS

pytestmark = pytest.mark.usefixtures("one_thread")

SHARES = {"light": 0.3, "nearly empty": 0.0, "all ones": 1.0}


def genomes(graph: ChannelGraph) -> dict[str, np.ndarray]:
    """One random genome of each kind."""
    generator = np.random.default_rng(7)
    return {kind: generator.random(graph.num_genes) < share for kind, share in SHARES.items()}


@pytest.mark.parametrize("name", every_nth(14, NETWORKS))
def test_every_cut_of_a_small_network_is_proven_priced_and_trains(name):
    torch.manual_seed(0)
    model, example = NETWORKS[name]()
    before = snapshot(model)
    graph = ChannelGraph(model, example)
    example = filled(example)
    for kind, genome in genomes(graph).items():
        thin = check_cut(graph, model, example, genome)
        if kind == "all ones":
            with (
                torch.no_grad()
            ):  # hooks that compute weights leave the last ones behind, which must be copied
                expected = tensors_in(call(model.eval(), example))
                found = tensors_in(call(thin.eval(), example))
            assert all(torch.allclose(one, due, atol=1e-5) for one, due in zip(found, expected, strict=True))
            model.train()
        twin = copy.deepcopy(thin)
        if kind in ("light", "nearly empty"):
            train_one_step(twin, example)
        assert all(
            torch.equal(p, q)
            for p, q in zip(thin.parameters(), graph.prune(genome).parameters(), strict=True)
        )
    assert_untouched(model, before)


ZOO = [(name, {}) for name in list_models() if name not in ("resnet32", "resnet44", "resnet110", "vgg19")]
ZOO += [("resnet20", {"shortcut": "conv"}), ("resnet56", {"shortcut": "conv"})]


# Of families that shallower ones stand for, and what takes longest.
DEEP = ("resnet56", "densenet100", "efficientnet_b0", "googlenet", "mobilenet_v2", "vgg16")


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(*each, marks=pytest.mark.slow) if each[0] in DEEP else each for each in ZOO],
    ids=[f"{n}-{o.get('shortcut', '')}" for n, o in ZOO],
)
def test_every_cut_of_a_zoo_network_is_proven_priced_and_trains(name, options):
    torch.manual_seed(0)
    model = create_model(name, image_size=8, **options)
    before = snapshot(model)
    graph = ChannelGraph(model, torch.zeros(1, 3, 8, 8))
    filters = sum(group.filters for group in graph.groups)
    prunable = sum(group.filters for group in graph.groups if group.prunable)
    assert prunable >= 0.99 * filters  # squeezenet's classes are filters, and stay
    example = torch.randn(1, 3, 8, 8)
    for kind, genome in genomes(graph).items():
        if kind in ("light", "nearly empty"):
            thin = check_cut(graph, model, example, genome)
            train_one_step(thin, torch.randn(2, 3, 8, 8))
    full = graph.full_genome()
    assert graph.flops(full) == counted(model, example)
    assert graph.params(full) == sum(p.numel() for p in model.parameters())
    model.train()
    assert_untouched(model, before)


def test_random_states_are_left_alone():
    model, example = NETWORKS["dropout"]()
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    due = (torch.rand(3), np.random.rand(3), random.random())
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    graph = ChannelGraph(model, example)
    graph.verify(graph.full_genome())
    graph.prune(graph.full_genome())
    assert torch.equal(torch.rand(3), due[0])
    assert np.array_equal(np.random.rand(3), due[1])
    assert random.random() == due[2]


def test_gradients_and_modes_are_left_alone():
    model, example = NETWORKS["residual_identity"]()
    model.tail.eval()
    call(model, filled(example)).sum().backward()
    before = snapshot(model)
    graph = ChannelGraph(model, example)
    thin = graph.prune(genomes(graph)["light"])
    assert_untouched(model, before)
    assert [module.training for module in thin.modules()] == [module.training for module in model.modules()]
    assert all(p.grad is None for p in thin.parameters())


HYPOTHESIS_NETWORKS = ("shuffle_unit", "residual_pad_in_lambda_module", "grouped_few", "layer_norm_by_hand")
SLOW_NETWORKS = ("unet", "weight_times_mask", "weight_norm_depthwise", "response_norm")
GRAPHS: dict[str, tuple[ChannelGraph, nn.Module, Any]] = {}


@pytest.mark.parametrize(
    "name", [*HYPOTHESIS_NETWORKS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_NETWORKS)]
)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_genome_holds(name, data):
    if name not in GRAPHS:
        torch.manual_seed(0)
        model, example = NETWORKS[name]()
        GRAPHS[name] = (ChannelGraph(model, example), model, filled(example))
    graph, model, example = GRAPHS[name]
    bits = data.draw(st.lists(st.booleans(), min_size=graph.num_genes, max_size=graph.num_genes))
    genome = np.array(bits)
    check_cut(graph, model, example, genome)
    repaired = graph.repair(genome)
    assert (repaired | genome == repaired).all()
    assert (graph.repair(repaired) == repaired).all()
    assert all(kept >= 1 for kept, _ in graph.widths(genome).values())
