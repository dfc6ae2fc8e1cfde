"""What `deeppruning train` left behind, as a record has it.

A training from which another one took its weights, as on images that grow, is a stage of that one: epochs
and time are those of all stages, the error is that of the last.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from commands import train_command
from deeppruning.errors import InputError, RunError
from deeppruning.graph import ChannelGraph
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.models import resolve_model
from deeppruning.system.toml import read_toml
from deeppruning.training.folder import TrainFolder
from deeppruning.training.tensors import read_tensors


def is_training(path: Path) -> bool:
    """Whether a folder is one that `deeppruning train` wrote."""
    return (path / "train.toml").is_file()


def training_records(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What is kept of trainings, in the order of their last stages; the folders may be in any order."""
    stages = {path.resolve().name: _stage(path) for path in folders}
    if len(stages) < len(folders):
        raise InputError("two of these folders have the same name, by which records and commands know them")
    before = {name: _taken_from(stage["options"]) for name, stage in stages.items()}
    found = []
    for path in folders:
        name = path.resolve().name
        if name in before.values():
            continue
        line = [name]
        while before[line[0]] in stages:
            line.insert(0, before[line[0]])
        found.append(_record(TrainFolder(path), [stages[one] for one in line]))
    return found


def _stage(path: Path) -> dict[str, Any]:
    if not TrainFolder(path).model.is_file():
        raise RunError(f"{path} holds a training that is not finished; the same `deeppruning train` goes on")
    options = read_toml(path / "train.toml")
    epochs = json.loads((path / "history.json").read_text(encoding="utf-8"))
    return {
        "command": train_command(options, path.resolve().name),
        "options": options,
        "epochs": len(epochs),
        "test_error": epochs[-1]["test_error"] if epochs else None,
        "seconds": sum(epoch["seconds"] for epoch in epochs),
    }


def _taken_from(options: dict[str, Any]) -> str:
    """The name of the folder that the first weights came from; empty where they were drawn."""
    weights = options.get("weights")
    return Path(weights).parent.name if weights else ""


def _record(last: TrainFolder, stages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": "training",
        "run": last.path.resolve().name,
        **{name: stages[-1]["options"][name] for name in ("model", "data", "seed")},
        "epochs": sum(stage["epochs"] for stage in stages),
        "test_error": stages[-1]["test_error"],
        "seconds": sum(stage["seconds"] for stage in stages),
        **_costs(last.model),
        "stages": list(stages),
    }


def _costs(weights: Path) -> dict[str, Any]:
    """What the network costs on images of its last stage; timed now, with one input on one thread."""
    _, metadata = read_tensors(weights)
    channels, height, width = json.loads(metadata["image_shape"])
    network = resolve_model(
        metadata["model"],
        num_classes=len(json.loads(metadata["classes"])),
        in_channels=channels,
        image_size=min(height, width),
        **json.loads(metadata["model_options"]),
    ).eval()
    example = torch.zeros(1, channels, height, width)
    graph = ChannelGraph(network, example)
    full = graph.full_genome()
    (seconds,) = measure_networks([network], example, Conditions())
    return {"flops": graph.flops(full), "params": graph.params(full), "latency_ms": 1000 * seconds}
