"""Outputs, losses and weights that are infinite or not a number are failures, wherever they turn up."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from deeppruning.cli.main import cli
from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import Diverged, RunError, WeightsError
from deeppruning.models import create_model
from deeppruning.training.evaluate import evaluate, recalibrate
from deeppruning.training.finite import learnt, not_finite
from deeppruning.training.folder import save_model
from deeppruning.training.loop import fit
from deeppruning.training.tensors import write_tensors
from deeppruning.training.weights import load_weights
from search_helpers import digits

BAD = [math.nan, math.inf, -math.inf]


def mostly_first_class() -> ImageSet:
    """95 % of the images are of class 0, so whoever takes nan for class 0 errs in 5 % only."""
    labels = torch.tensor([0] * 95 + [1] * 5)
    pixels = torch.randn(100, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return ImageSet(pixels, labels, ("a", "b"))


def network(bad: float | None = None) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    if bad is not None:
        made[0].weight.data[1, 0, 0, 0] = bad  # type: ignore[union-attr,operator]
    return made


@pytest.mark.parametrize("bad", BAD)
def test_evaluation_has_no_error_for_outputs_that_are_no_numbers(bad: float) -> None:
    with pytest.raises(Diverged, match=r"not finite \(nan or inf\) for 100 of 100 images"):
        evaluate(network(bad), mostly_first_class())


def test_one_image_of_many_is_enough() -> None:
    data = mostly_first_class()
    data.images[42, 0, 1, 1] = math.nan
    with pytest.raises(Diverged, match="1 of 100 images"):
        evaluate(network(), data)


@pytest.mark.parametrize("bad", BAD)
def test_recalibration_refuses_weights_and_statistics(bad: float) -> None:
    with pytest.raises(Diverged, match=r"0\.weight, 1\.running_mean"):
        recalibrate(network(bad), mostly_first_class())
    with pytest.raises(Diverged, match=r"1\.weight"):
        plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
        plain[1].weight.data[0, 0] = bad  # type: ignore[union-attr,operator]
        recalibrate(plain, mostly_first_class())


def test_the_last_step_of_an_epoch_is_looked_at_too(tmp_path: Path) -> None:
    """Its loss was taken before the step: one step at an absurd rate has a finite loss."""
    options = TrainConfig(epochs=1, lr=1e38, batch_size=100, crop=0, schedule="constant", weight_decay=1.0)
    for parameter in (model := network()).parameters():
        parameter.data *= 10
    with pytest.raises(Diverged, match=r"after epoch 1 \(learning rate 1e\+38\)"):
        fit(model, mostly_first_class(), options, checkpoint=tmp_path / "c.safetensors")
    assert not (tmp_path / "c.safetensors").exists()


def test_nothing_broken_is_saved_or_loaded(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"0\.weight"):
        save_model(tmp_path / "model.safetensors", network(math.nan), mostly_first_class())
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "broken.safetensors"
    save_file(network(math.inf).state_dict(), path)
    with pytest.raises(WeightsError, match=r"broken\.safetensors: 1 not finite \(nan or inf\): 0\.weight"):
        load_weights(network(), path)


def test_a_checkpoint_with_broken_weights_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    options = TrainConfig(epochs=2, batch_size=20, crop=0)
    fit(network(), mostly_first_class(), options, checkpoint=path, stop_after=1)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["model.1.running_var"][0] = math.nan
    write_tensors(path, tensors, metadata)  # with a checksum that is right
    with pytest.raises(RunError, match=r"not finite \(1\.running_var\)"):
        fit(network(), mostly_first_class(), options, checkpoint=path)


def test_masks_may_hold_infinities() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    assert not_finite(learnt(Masked())) == []
    assert not_finite(learnt(network(math.nan))) == ["0.weight"]


def test_commands_end_in_an_error(tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(cli, list(arguments))
        assert result.exit_code != 0
        assert isinstance(result.exception, (Diverged, WeightsError))
        return str(result.exception)

    options = ("--epochs", "1", "--lr", "1e30", "--out", str(tmp_path / "base"), "--quiet")
    few = digits(300, 20)[0]
    np.savez(tmp_path / "few.npz", images=few.images[:, 0].numpy(), labels=few.labels.numpy())
    assert "diverged" in refused("train", "resnet20", "--data", str(tmp_path / "few.npz"), *options)
    assert not (tmp_path / "base" / "model.safetensors").exists()
    model = create_model("resnet20", num_classes=10, in_channels=1)
    next(model.parameters()).data.fill_(math.nan)
    path = tmp_path / "nan.safetensors"
    save_file(model.state_dict(), path)
    given = ("resnet20", "--weights", str(path), "--data", "digits")
    assert "not finite" in refused("evaluate", *given)
    assert "not finite" in refused("prune", *given, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
