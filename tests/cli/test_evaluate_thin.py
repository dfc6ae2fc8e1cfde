"""`deeppruning evaluate` on a saved solution: its own error, and clear words on what does not fit."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import deeppruning as dp
from cli_calls import call
from deeppruning.data.registry import load_data
from deeppruning.errors import DeepPruningError
from deeppruning.models import create_model
from deeppruning.runs.facts import solution_fact
from deeppruning.runs.folder import RunFolder
from deeppruning.training.evaluate import evaluate


@pytest.fixture(scope="module")
def zoo_knee(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A solution of a network of the zoo, and its test error."""
    torch.manual_seed(0)
    test = load_data("digits").test
    model = create_model("resnet20", num_classes=10, in_channels=1, image_size=8)
    graph = dp.ChannelGraph(model, torch.zeros(1, 1, 8, 8))
    genome = graph.repair(np.arange(graph.num_genes) % 3 > 0)
    thin = graph.prune(genome).eval()
    error = evaluate(thin, test).error
    path = tmp_path_factory.mktemp("zoo") / "knee.safetensors"
    described = {"architecture": model.architecture, "classes": test.classes, "image_shape": test.image_shape}
    description = {key: json.dumps(value) for key, value in described.items()}
    return dp.save(thin, path, graph, genome, test_error=error, description=description), error


def measured(*given: object) -> float:
    return float(json.loads(call("evaluate", *given, "--device", "cpu", "--json").stdout)["error"])


def test_a_network_of_the_zoo_is_rebuilt_by_itself(zoo_knee: tuple[Path, float]) -> None:
    knee, error = zoo_knee
    assert measured("--weights", knee) == error
    assert measured("resnet20", "--weights", knee) == error
    assert measured("--model", "resnet20", "--weights", knee) == error


def test_a_class_of_ones_own_is_named(own_run: Path) -> None:
    spec = re.search(r'^spec = "(.*)"$', (own_run / "config.toml").read_text(), re.MULTILINE)
    assert spec is not None
    for role in ("heavy", "light"):
        with RunFolder.open(own_run, read_only=True) as run:
            figures = run.history.get_fact(solution_fact(role))
        assert figures is not None
        assert measured(spec[1], "--weights", own_run / f"{role}.safetensors") == figures["test_error"]
    with pytest.raises(DeepPruningError, match="not in the zoo: name its class as MODEL"):
        measured("--weights", own_run / "knee.safetensors")
    with pytest.raises(DeepPruningError, match="does not belong to this network"):
        measured("vgg16", "--weights", own_run / "knee.safetensors")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("vgg16",), "was pruned from resnet20, not from vgg16"),
        (("vgg16", "--model", "resnet20"), "leave one out"),
        (("--image-size", "12"), "made for images of 1x8x8, the data has 1x12x12"),
        (("--data", "{two}"), "10 classes .* the data has 2"),
    ],
)
def test_what_does_not_fit_is_told(
    zoo_knee: tuple[Path, float], tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    images, labels = np.zeros((20, 8, 8), dtype=np.uint8), np.arange(20) % 2
    np.savez(tmp_path / "two.npz", images=images, labels=labels)
    with pytest.raises(DeepPruningError, match=message):
        measured(*(part.format(two=tmp_path / "two.npz") for part in given), "--weights", zoo_knee[0])


def test_a_network_must_be_named_somehow(zoo_knee: tuple[Path, float], tmp_path: Path) -> None:
    with pytest.raises(DeepPruningError, match=r"MODEL.*--weights"):
        measured("--data", "digits")
    with pytest.raises(DeepPruningError, match="thin network of a run"):
        call("prune", "resnet20", "--weights", zoo_knee[0], "--out", tmp_path / "run")


def test_a_network_that_guesses_is_told_of() -> None:
    done = call("evaluate", "resnet20", "--data", "digits", "--device", "cpu")
    assert "better than guessing" in done.stderr
    assert "--image-size" in done.stderr
