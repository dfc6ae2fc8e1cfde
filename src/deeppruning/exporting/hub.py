"""A network as a folder for the Hugging Face Hub: weights, config.json and a card, which `dp.load` reads."""

import importlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from deeppruning.errors import DeepPruningError, InputError, RunError
from deeppruning.exporting.card import card_of
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.torch_files import _write_safetensors
from deeppruning.jobs.solution import HUB_WEIGHTS, load
from deeppruning.system.commands import how_to_install
from deeppruning.system.files import write_atomically
from deeppruning.version import __version__

CONFIG, CARD = "config.json", "README.md"
_TABLES = ("cut", "architecture", "image_shape", "classes", "normalization", "test_error", "train_error")


def write_hub(export: Export, path: Path) -> float:
    """Write the folder; the network is loaded from it again, and its outputs compared."""
    metadata = dict(export.metadata or {})
    if "cut" not in metadata:
        raise InputError(
            "a folder for the hub holds a pruned network that is saved: one of a run, such as knee, or one "
            "that `front.save` or `dp.save` wrote, not the original"
        )
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path, prefix=".") as scratch:
        weights = Path(scratch) / HUB_WEIGHTS
        _write_safetensors(export, weights)
        difference = _difference_of_hub_folder(export, weights)
        weights.replace(path / HUB_WEIGHTS)
    # A line for each key: with one for each number, a cut would fill thousands.
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in config_of(metadata).items()]
    write_atomically(path / CONFIG, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    write_atomically(path / CARD, card_of(metadata, export.run, type(export.model).__name__).encode())
    return difference


def config_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of a solution as the values of config.json."""
    tables = {name: json.loads(metadata[name]) for name in _TABLES if name in metadata}
    costs = {name: int(metadata[name]) for name in ("flops", "params") if name in metadata}
    return {"library_name": "deeppruning", "deeppruning_version": __version__, **costs, **tables}


def _difference_of_hub_folder(export: Export, weights: Path) -> float:
    """How far the outputs of the file, loaded again, differ from the network's."""
    again = load(weights, export.base)
    example = export.example().cpu()
    with torch.no_grad():
        before, after = export.network()(example), again(example)
    difference = float((before - after).abs().max()) if isinstance(before, torch.Tensor) else 0.0
    if not difference <= export.tolerance:
        raise RunError(f"the folder was not written: the outputs of its network differ by {difference:.1e}")
    return difference


def check_push(name: str) -> Any:
    """What is needed to push, checked before any work; returns huggingface_hub."""
    try:
        hub = importlib.import_module("huggingface_hub")
        names = importlib.import_module("huggingface_hub.utils")
    except ImportError as error:
        raise InputError(
            "--push needs the package huggingface_hub, the extra deeppruning-es[hub]: "
            f"{how_to_install('huggingface_hub')}"
        ) from error
    if name.count("/") != 1:
        raise InputError(f"give the repository to push to as USER/NAME, got {name!r}")
    try:
        names.validate_repo_id(name)
    except ValueError as error:
        raise InputError(f"{name!r} is not the name of a repository: {error}") from error
    if hub.get_token() is None:
        raise InputError("--push needs a login to Hugging Face: run `hf auth login`, or set HF_TOKEN")
    return hub


def push(folder: Path, name: str) -> str:
    """Upload a folder to the repository USER/NAME, which is made, private, if it does not exist."""
    hub = check_push(name)
    try:
        hub.create_repo(name, private=True, exist_ok=True)
        files = [HUB_WEIGHTS, CONFIG, CARD]
        return str(hub.upload_folder(repo_id=name, folder_path=str(folder), allow_patterns=files))
    except DeepPruningError:
        raise
    except Exception as error:
        raise RunError(
            f"{folder} is written, but was not pushed to {name}: {error}; run the command again to push it"
        ) from error


FORMATS.add(
    Format(
        name="hub",
        suffix="-hub",
        about="a folder for the Hugging Face Hub",
        write=write_hub,
        detail="folder for the Hugging Face Hub",
        graph=False,
        folder=True,
    ),
    place=40,
)
