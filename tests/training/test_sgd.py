"""SGD without torch's compiler takes the very steps of torch's own."""

import subprocess
import sys

import pytest
import torch

from deeppruning.training.loop import PlainSGD

SETTINGS = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}


def trained(kind: type[torch.optim.SGD], fused: bool) -> tuple[torch.Tensor, dict]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(7, 5)
    optimizer = kind(layer.parameters(), fused=fused, **SETTINGS)
    for step in range(4):
        if step == 2:  # as a checkpoint goes on
            state = optimizer.state_dict()
            optimizer = kind(layer.parameters(), fused=fused, **SETTINGS)
            optimizer.load_state_dict(state)
        optimizer.zero_grad(set_to_none=True)
        layer(torch.randn(3, 7)).square().sum().backward()
        optimizer.step()
    return layer.weight.detach(), optimizer.state_dict()["state"]


@pytest.mark.parametrize("fused", [True, False])
def test_steps_and_state_are_those_of_torch(fused: bool) -> None:
    ours, theirs = trained(PlainSGD, fused), trained(torch.optim.SGD, fused)
    assert torch.equal(ours[0], theirs[0])
    for place, state in theirs[1].items():
        assert torch.equal(ours[1][place]["momentum_buffer"], state["momentum_buffer"])


@pytest.mark.slow
def test_a_training_does_not_wait_for_the_compiler() -> None:
    code = """
import sys, torch
from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.training.loop import fit
images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
fit(net, ImageSet(images, torch.tensor([0, 1, 0, 1]), ("a", "b")), TrainConfig(epochs=1))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
