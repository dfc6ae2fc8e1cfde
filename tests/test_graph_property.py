"""What must hold for every network and every genome: the cut runs, trains, is proven and priced exactly."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deeppruning.graph import ChannelGraph
from deeppruning.graph.follow import tensors_in
from deeppruning.models import create_model, list_models
from graph_networks import NETWORKS

SHARES = {"light": 0.3, "heavy": 0.85, "nearly empty": 0.0, "all ones": 1.0}


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny networks gain nothing from threads, and suffer from them where tests run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def call(model: nn.Module, example: Any) -> Any:
    """Run a model on an example input of any of the accepted forms."""
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def filled(example: Any) -> Any:
    """The example input with random values."""
    generator = torch.Generator().manual_seed(3)
    if isinstance(example, dict):
        return {name: torch.randn(x.shape, generator=generator) for name, x in example.items()}
    if isinstance(example, tuple):
        return tuple(torch.randn(x.shape, generator=generator) for x in example)
    return torch.randn(example.shape, generator=generator)


def genomes(graph: ChannelGraph) -> dict[str, np.ndarray]:
    """One random genome of each kind."""
    generator = np.random.default_rng(7)
    return {kind: generator.random(graph.num_genes) < share for kind, share in SHARES.items()}


def counted(model: nn.Module, example: Any) -> int:
    """Multiply-adds of a whole batch, by torch's own counter."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call(model.eval(), example)
    return counter.get_total_flops() // 2


def batch_of(example: Any) -> int:
    """The batch size of an example input."""
    return tensors_in(example)[0].shape[0]


def train_one_step(model: nn.Module, example: Any) -> None:
    """A step of SGD must change a weight and leave all of them finite."""
    model.train()
    weights = [p for p in model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in weights]
    optimizer = torch.optim.SGD(weights, lr=0.01)
    loss = sum(t.float().square().mean() for t in tensors_in(call(model, example)) if t.is_floating_point())
    assert isinstance(loss, Tensor)
    loss.backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    assert all(bool(torch.isfinite(p).all()) for p in weights)


def check_cut(graph: ChannelGraph, model: nn.Module, example: Any, genome: np.ndarray) -> nn.Module:
    """One genome: proven, priced, named as before."""
    proof = graph.verify(genome)
    assert proof.difference <= proof.tolerance <= 1e-3
    thin = graph.prune(genome)
    assert graph.params(genome) == sum(p.numel() for p in thin.parameters())
    assert graph.flops(genome) * batch_of(example) == counted(thin, example)
    assert [n for n, _ in thin.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert list(thin.state_dict()) == list(model.state_dict())
    requires = [p.requires_grad for p in model.parameters()]
    assert [p.requires_grad for p in thin.parameters()] == requires
    return thin


def snapshot(model: nn.Module) -> dict[str, Any]:
    """All that a graph must leave as it is."""
    return {
        "state": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "ids": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
    }


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    """The model is what it was."""
    after = snapshot(model)
    assert after["state"].keys() == before["state"].keys()
    assert all(torch.equal(before["state"][name], after["state"][name]) for name in after["state"])
    for old, new in zip(before["grads"], after["grads"], strict=True):
        assert (old is None and new is None) or torch.equal(old, new)
    assert all(before[key] == after[key] for key in ("modes", "hooks", "ids"))


@pytest.mark.parametrize("name", NETWORKS)
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


@pytest.mark.parametrize(("name", "options"), ZOO, ids=[f"{n}-{o.get('shortcut', '')}" for n, o in ZOO])
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


HYPOTHESIS_NETWORKS = ("shuffle_unit", "unet", "residual_pad_in_lambda_module", "grouped_few")
HYPOTHESIS_NETWORKS += ("weight_times_mask", "weight_norm_depthwise", "layer_norm_by_hand", "response_norm")
GRAPHS: dict[str, tuple[ChannelGraph, nn.Module, Any]] = {}


@pytest.mark.parametrize("name", HYPOTHESIS_NETWORKS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
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
