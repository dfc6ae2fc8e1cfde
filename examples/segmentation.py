"""Prune a network with a task of your own: here, finding the stroke of a digit pixel by pixel."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.data.registry import load_data


class Segmenter(nn.Module):
    """A small U-shaped network: 8x8 pixels in, one logit a pixel out."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 16, 3, padding=1)
        self.inner = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.out = nn.Conv2d(32, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.down(x))
        wide = torch.relu(self.up(torch.relu(self.inner(skip))))
        logits: Tensor = self.out(torch.cat([skip, wide], dim=1))
        return logits


class Strokes(dp.Task):
    """Separate stroke from paper in noisy pictures; the error is the share of wrong pixels."""

    def __init__(self, images: Tensor) -> None:
        self.masks = (images > 127).float()
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
        self.pictures = images / 255 + 0.3 * noise

    def train(self, model: nn.Module, steps: int) -> None:
        """A few steps of Adam on everything."""
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        model.train()
        for _ in range(steps):
            loss = nn.functional.binary_cross_entropy_with_logits(model(self.pictures), self.masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def error(self, model: nn.Module) -> float:
        """Share of pixels on the wrong side."""
        with torch.no_grad():
            found = (model.eval()(self.pictures) > 0).float()
        return float((found != self.masks).float().mean())

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """Brief training, then the error."""
        self.train(model, steps=3)
        return self.error(model)

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> None:
        """Training at length, in one round."""
        self.train(model, steps=30)

    def test_error(self, model: nn.Module) -> float:
        """Measured on the same pictures here, to keep the example short."""
        return self.error(model)


def main(folder: Path) -> None:
    """Train, prune, compare."""
    torch.manual_seed(0)
    task = Strokes(load_data("digits").train.images[:200])
    model = Segmenter()
    task.train(model, steps=60)
    result = dp.prune(
        model,
        run_dir=folder / "strokes",
        task=task,
        example_input=torch.zeros(1, 1, 8, 8),
        search=dp.SearchConfig(offspring=6, generations=3),
        workers=1,
    )
    print(f"original  error {result.original.test_error:.4f}  {result.original.flops:,} multiply-adds")
    for solution in result.solutions:
        print(f"{solution.role:8}  error {solution.test_error:.4f}  {solution.flops:,} multiply-adds")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
