"""Prune an image classifier of Hugging Face transformers: its Trainer before and after, no labels between."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import (
    PrinterCallback,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

import deeppruning as dp
from deeppruning.data.registry import load_data


class Digits(Dataset[dict[str, Tensor]]):
    """Noisy digits in the form that the models of transformers are called with."""

    def __init__(self, part: str) -> None:
        digits = getattr(load_data("digits"), part)
        noisy = digits.images / 255 + 0.25 * torch.randn(digits.images.shape)
        self.pixels = nn.functional.interpolate(noisy, size=32)
        self.labels = digits.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"pixel_values": self.pixels[number], "labels": self.labels[number]}


def network() -> ResNetForImageClassification:
    """A small ResNet with random weights; `from_pretrained` gives one to be pruned in the same way."""
    return ResNetForImageClassification(
        ResNetConfig(
            num_channels=1,
            num_labels=10,
            embedding_size=16,
            hidden_sizes=[16, 32, 48],
            depths=[1, 2, 2],
            layer_type="basic",
        )
    )


def accuracy(prediction: Any) -> dict[str, float]:
    """What the Trainer works out when it evaluates."""
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def trainer(model: nn.Module, folder: Path, train: Digits, test: Digits, epochs: int, lr: float) -> Trainer:
    """A real Trainer that says little."""
    options = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        learning_rate=lr,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=32,
        per_device_eval_batch_size=360,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    made = Trainer(model, options, train_dataset=train, eval_dataset=test, compute_metrics=accuracy)
    made.remove_callback(PrinterCallback)
    return made


def main(folder: Path, seed: int = 0) -> None:
    """Train, search, train on."""
    logging.set_verbosity_error()
    set_seed(seed)
    train, test = Digits("train"), Digits("test")

    original = trainer(network(), folder, train, test, epochs=6, lr=2e-3)
    original.train()
    print(f"{'network':24} {'FLOPs':>7} {'accuracy':>9}")
    print(f"{'original':24} {1:7.1%} {original.evaluate()['eval_accuracy']:9.1%}")

    # Entries of the data set are dicts of named inputs; what is called a label is left out.
    options = dp.SearchConfig(focus=0.5, offspring=10, generations=5, sample=200, seed=seed)
    front = dp.search(original.model, train, search=options, workers=1)
    half = front.at(flops=0.5)
    share = half.flops / front.original.flops
    thin = trainer(half.model, folder, train, test, epochs=2, lr=5e-4)
    print(f"{'half, refitted':24} {share:7.1%} {thin.evaluate()['eval_accuracy']:9.1%}")

    thin.train()
    print(f"{'half, trained on':24} {share:7.1%} {thin.evaluate()['eval_accuracy']:9.1%}")
    front.save(thin.model, folder / "half.safetensors")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place), *map(int, sys.argv[1:]))
