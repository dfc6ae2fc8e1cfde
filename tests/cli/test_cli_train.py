"""`deeppruning train` and `evaluate` end to end on the digits, killed and resumed for real."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from cli_calls import call
from deeppruning.cli.commands.evaluate import evaluate
from deeppruning.cli.commands.train import train
from deeppruning.errors import RunError
from deeppruning.training.weights import normalization_for
from signalled import start

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORY = """
from torch import nn

def tiny(num_classes, in_channels, image_size):
    return nn.Sequential(
        nn.Conv2d(in_channels, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(),
        nn.Linear(72, num_classes),
    )
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(FACTORY)
    return f"{tmp_path / 'nets.py'}:tiny"


def run(command, *arguments: object) -> str:
    return call(*arguments, "--threads", 1, "--device", "cpu", command=command).stdout


def test_train_then_evaluate(tmp_path: Path, model: str):
    out = tmp_path / "base"
    said = run(train, model, "--data", "digits", "--epochs", 2, "--out", out)
    assert said.count("\n") == 3 and said.startswith("epoch 1/2  train error")
    history = json.loads((out / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history] == [1, 2]
    assert history[-1]["test_error"] < 0.3
    with safe_open(out / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["image_shape"]) == [1, 8, 8] and metadata["model"] == model
    assert len(json.loads(metadata["classes"])) == 10
    assert normalization_for(out / "model.safetensors") is not None

    arguments = (model, "--weights", out / "model.safetensors", "--data", "digits")
    measured = json.loads(run(evaluate, *arguments, "--json"))
    assert measured["error"] == history[-1]["test_error"] and measured["count"] == 360
    assert measured["normalization"]["source"] == "recorded with the weights"
    text = run(evaluate, *arguments, "--mean", 0.1, "--std", 0.5)
    assert text.startswith("normalisation: given by --mean and --std: mean 0.1000, std 0.5000\ntest error")

    assert "training is finished after epoch 2 of 2" in run(train, model, "--epochs", 2, "--out", out)
    with pytest.raises(RunError, match=r"lr was 0\.1 and is 0\.2"):
        run(train, model, "--epochs", 2, "--lr", 0.2, "--out", out)
    with pytest.raises(RunError, match="mean was"):
        run(train, model, "--epochs", 2, "--mean", 0.1, "--std", 0.5, "--out", out)


def test_defaults_fit_the_images(tmp_path: Path, model: str):
    run(train, model, "--epochs", 0, "--out", tmp_path / "base", "--quiet")
    options = (tmp_path / "base" / "train.toml").read_text()
    # Digits are gray and 8 pixels wide: never mirrored, cropped by one pixel.
    assert "flip = false" in options and "crop = 1\n" in options
    run(train, model, "--epochs", 0, "--out", tmp_path / "other", "--flip", "--crop", 0)
    assert "flip = true" in (tmp_path / "other" / "train.toml").read_text()


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, model: str):
    arguments = [model, "--data", "digits", "--epochs", "12", "--batch-size", "32"]
    run(train, *arguments, "--out", tmp_path / "whole")
    out = tmp_path / "killed"
    more = ("--out", out, "--threads", 1, "--device", "cpu")
    with start(signal.SIGKILL, "epoch  1/12", "train", *arguments, *more) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL and not (out / "model.safetensors").exists()
    said = run(train, *arguments, "--out", out)
    assert "training continues after epoch" in said
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    resumed = load_file(out / "model.safetensors")
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    assert len(json.loads((out / "history.json").read_text())) == 12


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, model: str):
    given = ("--epochs", 3, "--out", tmp_path / "out", "--threads", 1, "--device", "cpu")
    with start(signal.SIGINT, "epoch 1/3", "train", model, *given) as process:
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "the same command continues from there" in errors and "Traceback" not in errors


def test_folder_that_cannot_be_written(tmp_path: Path, model: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="choose another with --out"):
        run(train, model, "--epochs", 1, "--out", tmp_path / "file" / "out")
    if os.geteuid() == 0:
        return  # root may write anywhere
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(RunError, match="Permission denied"):
        run(train, model, "--epochs", 1, "--out", closed / "out")
