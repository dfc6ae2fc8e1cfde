"""What the tests of the search's command line share: a tiny network and a search of seconds."""

from pathlib import Path

import torch

from deeppruning.data.registry import load_data
from deeppruning.models import resolve_model
from deeppruning.training.folder import save_model

TINY = "nets.py"
FACTORY = """
from torch import nn

def tiny(num_classes, in_channels, image_size):
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes),
    )

def weigh(model):
    return sum(parameter.numel() for parameter in model.parameters())
"""


def trained(folder: Path) -> tuple[str, Path]:
    """The tiny network's spec, and a weights file: a search does not mind that they are only drawn."""
    (folder / TINY).write_text(FACTORY)
    (folder / "base").mkdir()
    spec = f"{folder / TINY}:tiny"
    data = load_data("digits").train
    torch.manual_seed(0)
    network = resolve_model(spec, num_classes=10, in_channels=1, image_size=8)
    weights = folder / "base" / "model.safetensors"
    save_model(weights, network, data, spec=spec)
    return spec, weights


def guided_arguments(model: str, weights: Path | None, out: Path, *more: object) -> list[str]:
    """The arguments of the guided search, the default, as small as that."""
    given: list[object] = [model, "--data", "digits", "--out", out]
    given += ["--offspring", 4, "--generations", 2, "--sample", 100, "--finetune-epochs", 1]
    given += ["--workers", 1, "--device", "cpu"]
    given += ["--weights", weights] if weights is not None else []
    return [str(value) for value in (*given, *more)]


def arguments(model: str, weights: Path | None, out: Path, *more: object) -> list[str]:
    """The arguments of the paper's search that takes a second: 11 candidates in two generations."""
    given: list[object] = [model, "--data", "digits", "--out", out, "--preset", "paper"]
    given += ["--offspring", 4, "--generations", 2, "--sample", 100, "--eval-epochs", 1, "--eval-lr", 0.02]
    given += ["--finetune-epochs", 2, "--workers", 1, "--device", "cpu"]
    given += ["--weights", weights] if weights is not None else []
    return [str(value) for value in (*given, *more)]
