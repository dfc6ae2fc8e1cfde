"""Every loader of the package with a whole file for it to read, for the tests that damage these files."""

import gzip
import json
import pickle
import shutil
import struct
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save, save_file

import deeppruning as dp
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.resume import lost_solutions
from deeppruning.cli.options.config_file import read_options
from deeppruning.cli.options.inputs import Inputs
from deeppruning.cli.options.run import Vouched
from deeppruning.comparison.prepare import Match, open_comparison
from deeppruning.comparison.problem import Network
from deeppruning.comparison.results import read_comparison
from deeppruning.comparison.run import Proposal, read_proposal, write_proposal
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.data.folders import load_folder
from deeppruning.data.npz import load_npz
from deeppruning.data.sets.cifar import read_python, read_sheets
from deeppruning.data.sets.mnist import read_idx
from deeppruning.data.unpacking import archive_reader, folder_reader
from deeppruning.exporting import read_network
from deeppruning.jobs.finetuning import Finetuning, read_state, write_state
from deeppruning.jobs.network_table import read_rows
from deeppruning.reporting.data import collect
from deeppruning.reporting.page import render
from deeppruning.reporting.plots import draw_plots
from deeppruning.runs import RunFolder
from deeppruning.training.checkpoint import EpochReport, load_checkpoint, save_checkpoint
from deeppruning.training.folder import TrainFolder
from deeppruning.training.tensors import CHECKSUM, write_tensors
from deeppruning.training.weights import load_weights, normalization_for
from report_runs import write_comparison
from search_helpers import STORED_RUN, TinyNet, stored_net, tiny_net

REPORT = EpochReport(1, 0.5, 0.25, None, 0.1, 100.0, 2.0)


@dataclass(frozen=True)
class Loader:
    """A file, by its path in a folder that `make` fills, and the call that reads it."""

    file: str
    make: Callable[[Path], Any]
    load: Callable[[Path], Any]

    def whole(self) -> Path:
        """A folder with the whole file, made once."""
        return _made(self)


@cache
def _made(loader: Loader) -> Path:
    folder = Path(tempfile.mkdtemp())
    loader.make(folder)
    return folder


def _stored(folder: Path) -> None:
    shutil.copytree(STORED_RUN, folder, dirs_exist_ok=True)


def _run(folder: Path) -> None:
    _stored(folder)
    config = (folder / "config.toml").read_text()
    more = {"data": {"data": "digits", "image_size": [8, 8], "mean": [0.3], "std": [0.4]}}
    model = f'spec = "resnet20"\nweights = {json.dumps(str(folder / "knee.safetensors"))}\n'
    (folder / "config.toml").write_text(config + model + tomli_w.dumps(more))


def _read_config(folder: Path) -> None:
    with RunFolder.open(folder, read_only=True) as run:
        Inputs.from_run(run, Vouched())
        SearchConfig.from_table(run.config["search"])
        FinetuneConfig.from_table(run.config["finetune"])
        assert run.config["run"]["device"] is not None
    read_options(folder / "config.toml", prune)


def _report(folder: Path) -> None:
    data = collect(folder)
    render(data)
    draw_plots(data, folder / "plots")


def _read_history(folder: Path) -> None:
    _report(folder)
    with RunFolder.open(folder, read_only=True) as run:
        read_rows(run)
        lost_solutions(run)
    Match.read(folder, stored_net())
    with RunFolder.open(folder) as run:
        for epoch in run.history.epochs()[:1]:
            run.history.record_epoch(epoch)


def _read_export(folder: Path) -> None:
    network = read_network(folder, "knee", model=TinyNet())
    network.example()
    network.normalization()


def _tuned(folder: Path) -> None:
    with RunFolder.open(folder, read_only=True) as run:
        Finetuning(run, None, print, seed=0)._read_finished(7)  # type: ignore[arg-type]


def _sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _with_architecture(folder: Path) -> None:
    with safe_open(STORED_RUN / "knee.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {key: value for key, value in file.metadata().items() if key != CHECKSUM}
    table = {"name": "resnet20", "num_classes": 10, "in_channels": 1, "image_size": 8, "shortcut": "pad"}
    save_file(tensors, folder / "zoo.safetensors", {**metadata, "architecture": json.dumps(table)})


def _weights(folder: Path) -> None:
    recorded = {"normalization": json.dumps({"mean": [0.5], "std": [0.25]})}
    write_tensors(folder / "w.safetensors", tiny_net().state_dict(), recorded)
    state = {"state_dict": tiny_net().state_dict(), "normalization": {"mean": [0.5], "std": [0.25]}}
    torch.save(state, folder / "w.pt")
    torch.save(state, folder / "w.th", _use_new_zipfile_serialization=False)


def _read_weights(path: Path) -> None:
    load_weights(TinyNet(), path)
    normalization_for(path)


def _images(count: int = 20) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(0).integers(0, 255, (count, 8, 8), dtype=np.uint8)


def _pictures(folder: Path) -> None:
    for place, image in enumerate(_images(8)):
        kind = folder / "set" / "ab"[place % 2]
        kind.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((24, 24)).save(kind / f"{place}.{'png' if place < 4 else 'jpg'}")


def _arrays(folder: Path) -> None:
    labels = np.arange(20) % 2
    np.savez(folder / "a.npz", images=_images(), labels=labels)
    np.savez_compressed(folder / "b.npz", images=_images(), labels=labels)
    head = struct.pack(">4B3I", 0, 0, 8, 3, 20, 8, 8)
    (folder / "idx").write_bytes(head + _images().tobytes())
    (folder / "idx.gz").write_bytes(gzip.compress(head + _images().tobytes()))
    table = {b"labels": [1, 2], b"data": np.zeros((2, 3072), np.uint8)}
    (folder / "batch").write_bytes(pickle.dumps(table, 2))
    Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(folder / "data_batch_1.png")
    (folder / "train_lables.json").write_text(json.dumps([1, 2]))
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        archive.add(folder / "idx", "inner/idx")
        archive.add(folder / "batch", "inner/other")


def _train_folder(folder: Path) -> None:
    TrainFolder(folder).claim({"model": "resnet20", "lr": 0.1, "mean": [0.5]})


def _read_train_folder(folder: Path) -> None:
    TrainFolder(folder).claim({"model": "resnet20", "lr": 0.1, "mean": [0.5]})


def _checkpoint(folder: Path) -> None:
    model = tiny_net()
    save_checkpoint(folder / "checkpoint", model, _sgd(model), {"lr": 0.1}, [REPORT])


def _read_checkpoint(folder: Path) -> None:
    model = tiny_net()
    load_checkpoint(folder / "checkpoint", model, _sgd(model), {"lr": 0.1})


def _comparison(folder: Path) -> None:
    write_comparison(folder, ("l1", "es-plus"))
    with open_comparison(folder / "compare", {"images": 5, "flops": [1, 2]}):
        pass
    networks = (Network(np.ones(5, np.bool_), {"a": torch.zeros(3)}), Network(np.ones(5, np.bool_), None))
    write_proposal(folder / "proposal", Proposal(networks, (0.1, 0.2), 3.0))


def _read_compare(folder: Path) -> None:
    try:
        open_comparison(folder / "compare", {"images": 5, "flops": [1, 2]}).close()
    finally:
        (folder / "compare" / "run.lock").unlink(missing_ok=True)


def _unsigned(folder: Path) -> None:
    """A solution without a checksum."""
    shutil.copy(STORED_RUN / "knee.safetensors", folder)
    rewrite_metadata(folder / "knee.safetensors", lambda metadata: metadata)


LOADERS = {
    "config.toml": Loader("config.toml", _run, _read_config),
    "history.sqlite": Loader("history.sqlite", _stored, _read_history),
    "fine-tuned": Loader("finetune/candidate-7.safetensors", _run, _tuned),
    "solution": Loader("knee.safetensors", _run, lambda at: dp.load(at / "knee.safetensors", TinyNet())),
    "unsigned solution": Loader(
        "knee.safetensors", _unsigned, lambda at: dp.load(at / "knee.safetensors", TinyNet())
    ),
    "zoo solution": Loader("zoo.safetensors", _with_architecture, lambda at: dp.load(at / "zoo.safetensors")),
    "exported": Loader("knee.safetensors", _run, _read_export),
    "safetensors": Loader("w.safetensors", _weights, lambda at: _read_weights(at / "w.safetensors")),
    "torch weights": Loader("w.pt", _weights, lambda at: _read_weights(at / "w.pt")),
    "older torch weights": Loader("w.th", _weights, lambda at: _read_weights(at / "w.th")),
    "checkpoint": Loader("checkpoint", _checkpoint, _read_checkpoint),
    "state": Loader(
        "state", lambda at: write_state(at / "state", b"abc" * 99), lambda at: read_state(at / "state")
    ),
    "train.toml": Loader("train.toml", _train_folder, _read_train_folder),
    "npz": Loader("a.npz", _arrays, lambda at: load_npz(at / "a.npz")),
    "compressed npz": Loader("b.npz", _arrays, lambda at: load_npz(at / "b.npz")),
    "idx": Loader("idx", _arrays, lambda at: read_idx(at / "idx", 3)),
    "idx.gz": Loader("idx.gz", _arrays, lambda at: read_idx(at / "idx.gz", 3)),
    "png": Loader("set/a/0.png", _pictures, lambda at: load_folder(at / "set")),
    "jpeg": Loader("set/a/4.jpg", _pictures, lambda at: load_folder(at / "set")),
    "pickle": Loader("batch", _arrays, lambda at: read_python(folder_reader(at), "batch", 1, 2)),
    "sheet": Loader(
        "data_batch_1.png", _arrays, lambda at: read_sheets(folder_reader(at), "data_batch_1", 1, 2)
    ),
    "labels": Loader(
        "train_lables.json", _arrays, lambda at: read_sheets(folder_reader(at), "data_batch_1", 1, 2)
    ),
    "archive": Loader(
        "a.tar.gz", _arrays, lambda at: archive_reader(at / "a.tar.gz", "inner", ("idx",))("idx")
    ),
    "comparison": Loader("results.json", _comparison, lambda at: read_comparison(at / "results.json")),
    "comparison's options": Loader("compare/config.toml", _comparison, _read_compare),
    "proposal": Loader("proposal", _comparison, lambda at: read_proposal(at / "proposal")),
}
# Errors of these name the file within; whoever calls them puts the archive or folder in front.
NAMED_BY_THE_CALLER = ("archive",)


def rewrite_metadata(path: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """The same tensors with other metadata, and no checksum that would tell."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = {key: value for key, value in (file.metadata() or {}).items() if key != CHECKSUM}
    path.write_bytes(save(tensors, change(metadata)))
