"""Checkpoints on failing disks: the previous one survives, and the message says what to do."""

import json
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.errors import RunError
from deeppruning.training.checkpoint import read_history
from deeppruning.training.loop import fit
from deeppruning.training.tensors import write_tensors

DATA = ImageSet(torch.rand(12, 1, 8, 8), torch.arange(12) % 2, ("a", "b"))
CONFIG = TrainConfig(epochs=2, lr=0.01, batch_size=6, crop=0)


def net(width: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: writes then fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_contents(tmp_path: Path):
    path = tmp_path / "c.safetensors"
    model = net()
    fit(model, DATA, CONFIG, checkpoint=path)
    tensors = load_file(path)
    assert torch.equal(tensors["model.1.weight"], model[1].weight)
    assert tensors["optimizer.momentum_buffer.1.weight"].shape == (2, 64)
    assert int(tensors["model.2.num_batches_tracked"]) == 4
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["format"] == "2"
    assert json.loads(metadata["job"])["lr"] == 0.01
    assert len(json.loads(metadata["history"])) == 2


def test_tied_weights_and_strides_are_saved(tmp_path: Path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 2))
    model[2].weight = model[1].weight
    fit(model.to(memory_format=torch.channels_last), DATA, CONFIG, checkpoint=tmp_path / "c.safetensors")
    tensors = load_file(tmp_path / "c.safetensors")
    assert torch.equal(tensors["model.1.weight"], tensors["model.2.weight"])


def test_previous_checkpoint_survives_a_write_that_fails(tmp_path: Path):
    path = tmp_path / "c.safetensors"
    fit(net(), DATA, CONFIG, checkpoint=path, stop_after=1)
    before = path.read_bytes()
    with largest_file(1000), pytest.raises(RunError, match="previous file is untouched"):
        fit(net(), DATA, CONFIG, checkpoint=path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]
    assert len(read_history(path)) == 1


def test_full_disk_is_named(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a tiny file system cannot be mounted here")
    try:
        path = disk / "c.safetensors"
        write_tensors(path, {"small": torch.zeros(1000)}, {})
        with pytest.raises(RunError, match=r"disk is full.*previous file is untouched"):
            write_tensors(path, {"large": torch.zeros(30000)}, {})
        assert list(load_file(path)) == ["small"]
        assert [entry.name for entry in disk.iterdir()] == ["c.safetensors"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("damage", ["cut", "noise", "other"])
def test_damaged_checkpoint_is_refused(tmp_path: Path, damage: str):
    path = tmp_path / "c.safetensors"
    fit(net(), DATA, CONFIG, checkpoint=path)
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "noise":
        path.write_bytes(bytes(range(256)))
    else:
        write_tensors(path, {"weight": torch.zeros(2)}, {})
    with pytest.raises(RunError, match="delete it to start again, or choose another folder"):
        fit(net(), DATA, CONFIG, checkpoint=path)
