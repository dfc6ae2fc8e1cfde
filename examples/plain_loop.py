"""Prune a network inside a PyTorch training loop of your own: no labels in the search, no training by us."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.data.registry import load_data


def network() -> nn.Module:
    """Any module does; this one tells digits of 8x8 pixels apart."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def noisy(images: Tensor) -> Tensor:
    """Digits through a poor camera: clean ones are too easy to show a difference."""
    return images / 255 + 0.25 * torch.randn(images.shape)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> None:
    """The loop that you have; the thin network goes through it as the original did."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images that are recognised."""
    with torch.no_grad():
        return float((model.eval()(images).argmax(1) == labels).float().mean())


def main(folder: Path, seed: int = 0) -> None:
    """Train, search, train on, save, load."""
    torch.manual_seed(seed)
    digits = load_data("digits")
    images, labels = noisy(digits.train.images), digits.train.labels
    held_out = noisy(digits.test.images), digits.test.labels

    model = network()
    train(model, images, labels, epochs=10, lr=0.05)
    print(f"{'network':24} {'FLOPs':>7} {'accuracy':>9}")
    print(f"{'original':24} {1:7.1%} {accuracy(model, *held_out):9.1%}")

    options = dp.SearchConfig(focus=0.5, offspring=8, generations=5, seed=seed)
    front = dp.search(model, images[:300], search=options, workers=1)  # inputs alone, no labels
    half = front.at(flops=0.5)  # the best of all candidates within half of the FLOPs
    thin, share = half.model, half.flops / front.original.flops
    print(f"{'half, refitted':24} {share:7.1%} {accuracy(thin, *held_out):9.1%}")

    train(thin, images, labels, epochs=3, lr=0.01)
    reached = accuracy(thin, *held_out)
    print(f"{'half, trained on':24} {share:7.1%} {reached:9.1%}")

    path = front.save(thin, folder / "half.safetensors", test_error=1 - reached)
    again = dp.load(path, network())  # a fresh network of the original's class; its weights do not matter
    print(f"{'half, loaded again':24} {share:7.1%} {accuracy(again, *held_out):9.1%}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), *map(int, sys.argv[1:]))
