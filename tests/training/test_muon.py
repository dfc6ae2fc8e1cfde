"""Muon: steps of a fixed share of each kernel's norm, in directions that are made orthogonal."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.training.loop import fit
from deeppruning.training.muon import LEAST, Muon, orthogonalised


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**31))
def test_singular_values_come_near_one(rows: int, columns: int, seed: int):
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    # Directions a hundred times weaker than the strongest cannot be told from noise.
    values = torch.linalg.svdvals(matrix)
    turned = torch.linalg.svdvals(orthogonalised(matrix))
    strong = turned[values > values.max() / 100]
    assert strong.min() > 0.3
    assert strong.max() < 1.3


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_step_is_a_share_of_the_kernel_whatever_its_scale(scale: float):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 8, 3, bias=False)
    with torch.no_grad():
        layer.weight.mul_(scale)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn_like(before) / scale
    Muon(layer.parameters(), lr=0.02).step()
    moved = (layer.weight.detach() - before).norm() / before.norm()
    assert moved.item() == pytest.approx(max(0.02, 0.02 * LEAST * 4 / before.norm().item()), rel=0.6)


def test_a_kernel_of_zeros_moves():
    layer = nn.Linear(3, 3, bias=False)
    nn.init.zeros_(layer.weight)
    layer.weight.grad = torch.eye(3)
    Muon(layer.parameters(), lr=0.1).step()
    assert layer.weight.abs().max() > 0


def test_vectors_move_as_by_adam():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    same = nn.Parameter(weight.detach().clone())
    muon, adam = Muon([weight], lr=0.1), torch.optim.Adam([same], lr=0.01, betas=(0.9, 0.99))
    for step in range(5):
        for each in (weight, same):
            each.grad = torch.tensor([0.3 + step, -1.0])
        muon.step()
        adam.step()
    assert torch.allclose(weight, same, atol=1e-6)


def test_a_layer_without_gradient_stays():
    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    Muon(layer.parameters(), lr=0.1).step()
    assert torch.equal(layer.weight, before)


def test_a_stopped_training_continues_to_the_same_weights(tmp_path):
    images = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    data = ImageSet(images, (images.mean((1, 2, 3)) > 0).long(), ("low", "high"))
    config = TrainConfig(epochs=2.5, lr=0.02, optimizer="muon", schedule="linear", batch_size=8, crop=0)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    whole, parts = network(), network()
    reports = fit(whole, data, config)
    checkpoint = tmp_path / "c.safetensors"
    for _ in range(3):
        parts = network()
        fit(parts, data, config, checkpoint=checkpoint, stop_after=1)
    assert len(reports) == 3
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))
