"""Prune a LightningModule: trained by a Trainer, halved without labels, trained on by a Trainer."""

import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import deeppruning as dp
from deeppruning.data.registry import load_data


class Classifier(lightning.LightningModule):
    """As Lightning wants it: a network and how it is trained and tested."""

    def __init__(self, network: nn.Module, lr: float) -> None:
        super().__init__()
        self.network, self.lr = network, lr

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(images)
        return scores

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def test_step(self, batch: list[Tensor], number: int) -> None:
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean(), on_epoch=True)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def network() -> nn.Module:
    """A small convolutional network for digits of 8x8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def trainer(epochs: int, folder: Path) -> lightning.Trainer:
    """A real Trainer that says little."""
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def loaders() -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Noisy digits with their labels, for training and for testing."""
    digits = load_data("digits")
    train, test = (
        TensorDataset(part.images / 255 + 0.25 * torch.randn(part.images.shape), part.labels)
        for part in (digits.train, digits.test)
    )
    return DataLoader(train, batch_size=64, shuffle=True), DataLoader(test, batch_size=len(test))


def main(folder: Path, seed: int = 0) -> None:
    """Train, search, train on."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # how many processes should read, and the like
    lightning.seed_everything(seed)
    train, test = loaders()

    def accuracy(module: Classifier) -> float:
        return trainer(1, folder).test(module, test, verbose=False)[0]["accuracy"]

    module = Classifier(network(), lr=0.05)
    trainer(10, folder).fit(module, train)
    print(f"{'network':24} {'FLOPs':>7} {'accuracy':>9}")
    print(f"{'original':24} {1:7.1%} {accuracy(module):9.1%}")

    # The module itself is searched, by the inputs of its own loader: labels are left out.
    options = dp.SearchConfig(focus=0.5, offspring=10, generations=5, sample=300, seed=seed)
    front = dp.search(module, train, search=options, workers=1)
    half = front.at(flops=0.5)
    thin, share = half.model, half.flops / front.original.flops
    assert isinstance(thin, Classifier)  # an ordinary LightningModule again
    print(f"{'half, refitted':24} {share:7.1%} {accuracy(thin):9.1%}")

    thin.lr = 0.01
    trainer(3, folder).fit(thin, train)
    print(f"{'half, trained on':24} {share:7.1%} {accuracy(thin):9.1%}")
    front.save(thin, folder / "half.safetensors")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), *map(int, sys.argv[1:]))
