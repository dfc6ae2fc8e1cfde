"""Prune a U-Net to half of its FLOPs by unlabelled images, and see what becomes of its mean IoU."""

import sys

import torch
from torch import Tensor, nn

import deeppruning as dp

SIDE = 32
CLASSES = 3  # paper, discs, squares


def scenes(count: int) -> tuple[Tensor, Tensor]:
    """Noisy grey pictures of two discs and two squares each, and the class of every pixel."""
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    masks = torch.zeros(count, SIDE, SIDE, dtype=torch.long)
    for kind in (1, 2, 1, 2):
        y, x, radius = (torch.rand(3, count, 1, 1) * torch.tensor([26, 26, 3]).view(3, 1, 1, 1)) + 3
        across, down = (columns - x).abs(), (rows - y).abs()
        inside = across**2 + down**2 < radius**2 if kind == 1 else torch.maximum(across, down) < radius * 0.88
        masks[inside] = kind
    brightness = torch.tensor([0.0, 0.8, 0.8])[masks]  # only their form tells the two apart
    return (brightness + 0.25 * torch.randn(brightness.shape))[:, None], masks


def double(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with their norms."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Twice down, twice up, with what was there before going down laid beside what comes up."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.middle, self.coarse = double(1, 12), double(12, 24), double(24, 48)
        self.up_middle, self.up_fine = (
            nn.ConvTranspose2d(48, 24, 2, stride=2),
            nn.ConvTranspose2d(24, 12, 2, stride=2),
        )
        self.join_middle, self.join_fine = double(48, 24), double(24, 12)
        self.classify = nn.Conv2d(12, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        middle = self.middle(nn.functional.max_pool2d(fine, 2))
        coarse = self.coarse(nn.functional.max_pool2d(middle, 2))
        middle = self.join_middle(torch.cat([middle, self.up_middle(coarse)], dim=1))
        fine = self.join_fine(torch.cat([fine, self.up_fine(middle)], dim=1))
        logits: Tensor = self.classify(fine)
        return logits


def train(model: nn.Module, images: Tensor, masks: Tensor, epochs: int, lr: float) -> None:
    """Adam with a falling rate."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(16):
            loss = nn.functional.cross_entropy(model(images[rows]), masks[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def mean_iou(model: nn.Module, images: Tensor, masks: Tensor) -> float:
    """Intersection over union of the pixels of each class, averaged over the classes."""
    with torch.no_grad():
        found = model.eval()(images).argmax(1)
    shares = []
    for kind in range(CLASSES):
        both, either = (found == kind) & (masks == kind), (found == kind) | (masks == kind)
        shares.append(both.sum() / either.sum())
    return float(torch.stack(shares).mean())


def main(seed: int = 0) -> None:
    """Train, search without masks, train on."""
    torch.manual_seed(seed)
    labelled, unlabelled, held_out = scenes(300), scenes(100)[0], scenes(200)
    model = UNet()
    train(model, *labelled, epochs=14, lr=0.01)
    print(f"{'network':24} {'FLOPs':>7} {'mean IoU':>9}")
    print(f"{'original':24} {1:7.1%} {mean_iou(model, *held_out):9.3f}")

    options = dp.SearchConfig(focus=0.5, offspring=10, generations=4, seed=seed)
    front = dp.search(model, unlabelled, search=options, workers=1)
    half = front.at(flops=0.5)
    thin, share = half.model, half.flops / front.original.flops
    print(f"{'half, refitted':24} {share:7.1%} {mean_iou(thin, *held_out):9.3f}")

    train(thin, *labelled, epochs=4, lr=0.001)
    print(f"{'half, trained on':24} {share:7.1%} {mean_iou(thin, *held_out):9.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
