"""Prune a network of 1-D convolutions that hears what kind of sound it is given, by unlabelled sounds."""

import math
import sys

import torch
from torch import Tensor, nn

import deeppruning as dp

LENGTH = 512  # samples of a sound
RATE = 4000  # samples a second
KINDS = ("steady", "rising", "falling", "trembling")


def sounds(count: int) -> tuple[Tensor, Tensor]:
    """Tones of a tenth of a second in noise, and what becomes of their pitch."""
    kinds = torch.randint(len(KINDS), (count,))
    time = torch.arange(LENGTH) / RATE
    start, slope = 400 + 400 * torch.rand(count, 1), 1500 + 1500 * torch.rand(count, 1)
    turn = (kinds == 1).float() - (kinds == 2).float()
    pitch = start + 400 * (kinds == 2)[:, None] + turn[:, None] * slope * time  # hertz, at each moment
    pitch = pitch + 150 * (kinds == 3)[:, None] * torch.sin(2 * math.pi * 30 * time)
    phase = 2 * math.pi * (torch.rand(count, 1) + pitch.cumsum(1) / RATE)
    return (torch.sin(phase) + 1.2 * torch.randn(count, LENGTH))[:, None], kinds


def network() -> nn.Module:
    """Four convolutions along time, each shortening it."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 24), (24, 32), (32, 48), (48, 48)):
        layers += [nn.Conv1d(inputs, outputs, 9, stride=2, padding=4), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(192, len(KINDS)))


def train(model: nn.Module, waves: Tensor, kinds: Tensor, epochs: int, lr: float) -> None:
    """Adam with a falling rate."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(waves)).split(64):
            loss = nn.functional.cross_entropy(model(waves[rows]), kinds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def accuracy(model: nn.Module, waves: Tensor, kinds: Tensor) -> float:
    """Share of sounds that are recognised."""
    with torch.no_grad():
        return float((model.eval()(waves).argmax(1) == kinds).float().mean())


def main(seed: int = 0) -> None:
    """Train, search without labels, train on."""
    torch.manual_seed(seed)
    labelled, unlabelled, held_out = sounds(2000), sounds(300)[0], sounds(1000)
    model = network()
    train(model, *labelled, epochs=10, lr=0.003)
    print(f"{'network':24} {'FLOPs':>7} {'accuracy':>9}")
    print(f"{'original':24} {1:7.1%} {accuracy(model, *held_out):9.1%}")

    options = dp.SearchConfig(focus=0.5, offspring=10, generations=5, seed=seed)
    front = dp.search(model, unlabelled, search=options, workers=1)
    half = front.at(flops=0.5)
    thin, share = half.model, half.flops / front.original.flops
    print(f"{'half, refitted':24} {share:7.1%} {accuracy(thin, *held_out):9.1%}")

    train(thin, *labelled, epochs=3, lr=0.001)
    print(f"{'half, trained on':24} {share:7.1%} {accuracy(thin, *held_out):9.1%}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
