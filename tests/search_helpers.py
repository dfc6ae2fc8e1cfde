"""A tiny network, a little real data and what a run leaves behind, for the tests of the search."""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import deeppruning as dp
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample
from deeppruning.runs import RunFolder
from deeppruning.searching.task import Task

STORED_RUN = Path(__file__).parent / "fixtures" / "run"  # of the current format
EXAMPLE = torch.zeros(1, 1, 8, 8)  # an input of TinyNet


class TinyNet(nn.Module):
    """Two convolutions and a residual sum: quick, and with every kind of tie that matters here."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.inner = nn.Conv2d(channels, 8, 3, padding=1)
        self.outer = nn.Conv2d(8, channels, 3, padding=1)
        self.linear = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.outer(torch.relu(self.inner(x))))
        out: Tensor = self.linear(x.mean((2, 3)))
        return out


def tiny_net(seed: int = 0) -> TinyNet:
    """The same weights for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TinyNet()


def stored_net() -> TinyNet:
    """The network of the stored run, by its weights: drawn anew, they differ in last bits."""
    network = TinyNet()
    network.load_state_dict(load_file(STORED_RUN / "finetune" / "original.safetensors"))
    return network


def digits(train: int = 200, test: int = 100) -> tuple[ImageSet, ImageSet]:
    """A class-balanced part of the embedded digits."""
    splits = load_data("digits")
    return balanced_sample(splits.train, train, 0), balanced_sample(splits.test, test, 0)


def quick_search(**options: Any) -> dp.SearchConfig:
    """The paper's search, in seconds."""
    quick: dict[str, Any] = {"offspring": 4, "generations": 3, "sample": 60, "eval_epochs": 1}
    return dp.SearchConfig.paper(**{**quick, "eval_batch_size": 20, **options})


def quick_guided(**options: Any) -> dp.SearchConfig:
    """The guided search, with a refit for each candidate, in less."""
    return dp.SearchConfig(**{"offspring": 4, "generations": 3, "sample": 60, **options})


def quick_finetune(**options: Any) -> dp.FinetuneConfig:
    """A fine-tuning of seconds, suited to 8x8 digits."""
    return dp.FinetuneConfig.paper(**{"epochs": 2, "batch_size": 50, "crop": 1, "flip": False, **options})


class SignalsItsWorkerOnce(Task):
    """Stops or kills the worker that first meets it; the second attempt finds the mark and goes on."""

    def __init__(self, mark: Path, signal: int) -> None:
        self.mark, self.signal = mark, signal

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), self.signal)
        return (seed % 1000) / 1000


def outcome(run_dir: Path) -> dict[str, Any]:
    """All that must be equal between two runs that are the same: bytes of files, and every result."""
    with RunFolder.open(run_dir, read_only=True) as run:
        history = run.history
        return {
            "files": {role: run.solution(role).read_bytes() for role in ("knee", "heavy", "light")},
            "candidates": [
                (
                    (row.id, row.generation, row.genome.tobytes(), row.operator, row.parents),
                    (row.evaluation.error, row.evaluation.cost, row.evaluation.score),
                )
                for row in history.candidates()
                if row.evaluation is not None
            ],
            "picks": history.picks(),
            "epochs": [
                (row.solution, row.epoch, row.train_loss, row.train_error, row.test_error, row.lr)
                for row in history.epochs()
            ],
            "facts": history.facts(),
        }
