"""Saved solutions: read back to the bit, and refused when they do not belong."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import deeppruning as dp
from deeppruning.errors import WeightsError
from deeppruning.jobs.solution import read_solution
from deeppruning.models import create_model
from deeppruning.training.tensors import CHECKSUM
from search_helpers import TinyNet, digits, quick_finetune, quick_search, tiny_net


@pytest.fixture(scope="module")
def knee(tmp_path_factory: pytest.TempPathFactory):
    train, test = digits()
    return dp.prune(
        tiny_net(),
        train,
        test,
        run_dir=tmp_path_factory.mktemp("solution") / "run",
        search=quick_search(generations=1),
        finetune=quick_finetune(epochs=1),
        workers=1,
    ).knee


def rewrite(path: Path, target: Path, **changes: str) -> Path:
    metadata, weights = read_solution(path)
    metadata.pop(CHECKSUM)
    save_file(weights, target, {**metadata, **changes})
    return target


def test_own_class_gives_the_same_outputs_to_the_bit(knee) -> None:
    images = torch.randn(3, 1, 8, 8)
    loaded = dp.load(knee.path, TinyNet())
    assert torch.equal(loaded(images), knee.model(images))
    assert not loaded.training
    assert [name for name, _ in loaded.named_parameters()] == [
        name for name, _ in TinyNet().named_parameters()
    ]


def test_metadata_tells_what_a_reader_needs(knee) -> None:
    metadata, _ = read_solution(knee.path)
    assert metadata["role"] == "knee"
    assert json.loads(metadata["classes"]) == [str(digit) for digit in range(10)]
    assert json.loads(metadata["image_shape"]) == [1, 8, 8]
    assert len(json.loads(metadata["normalization"])["mean"]) == 1
    assert int(metadata["flops"]) == knee.flops
    assert len(metadata["base"]) == 64


def test_network_from_elsewhere_cannot_be_rebuilt_by_itself(knee) -> None:
    with pytest.raises(WeightsError, match="give an instance of its class"):
        dp.load(knee.path)


def test_another_network_is_refused(knee) -> None:
    with pytest.raises(WeightsError, match="does not belong to this network"):
        dp.load(knee.path, create_model("vgg16"))
    with pytest.raises(WeightsError, match="does not belong to this network"):
        dp.load(knee.path, TinyNet(channels=7))


@pytest.mark.parametrize(
    "change",
    [
        {"format": "something/9"},
        {"cut": "not json"},
        {"cut": "{}"},
        {"cut": json.dumps({"kept": [[5, 1]], "widths": [6], "parameters": {}})},
        {"architecture": json.dumps({"name": "os.system"})},
        {"architecture": json.dumps({"name": "vgg16", "num_classes": "rm -rf"})},
        {"architecture": "[]"},
    ],
)
def test_wrong_or_hostile_metadata_is_refused(knee, tmp_path: Path, change: dict[str, str]) -> None:
    path = rewrite(knee.path, tmp_path / "file.safetensors", **change)
    with pytest.raises(WeightsError):
        dp.load(path, None if "architecture" in change else TinyNet())


def test_truncated_damaged_and_missing_files_are_refused(knee, tmp_path: Path) -> None:
    content = knee.path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    for name, damaged in {
        "empty": b"",
        "header": content[: 8 + length // 2],
        "short": content[:-10],
        "pickle": b"\x80\x04cos\nsystem\n.",
    }.items():
        path = tmp_path / name
        path.write_bytes(damaged)
        with pytest.raises(WeightsError, match="damaged or not a safetensors file"):
            dp.load(path, TinyNet())
    with pytest.raises(WeightsError, match="is not a file"):
        dp.load(tmp_path / "absent", TinyNet())


def test_plain_weights_are_no_solution(knee, tmp_path: Path) -> None:
    save_file(load_file(knee.path), tmp_path / "plain.safetensors")
    with pytest.raises(WeightsError, match="records no cut"):
        dp.load(tmp_path / "plain.safetensors", TinyNet())
