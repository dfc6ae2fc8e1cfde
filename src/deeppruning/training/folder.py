"""The folder of a training job: its options, checkpoint, history and, at the end, the network.

train.toml, checkpoint.safetensors, history.json (after every epoch) and model.safetensors.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from deeppruning.data.stream import Images
from deeppruning.errors import DAMAGE, RunError
from deeppruning.options import differences
from deeppruning.system.files import write_atomically
from deeppruning.system.toml import read_toml
from deeppruning.training.checkpoint import EpochReport
from deeppruning.training.finite import check_learnt
from deeppruning.training.tensors import write_tensors


@dataclass(frozen=True)
class TrainFolder:
    """Paths and contents of one training job's folder."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The state after the last finished epoch."""
        return self.path / "checkpoint.safetensors"

    @property
    def model(self) -> Path:
        """The trained network's weights."""
        return self.path / "model.safetensors"

    def create(self) -> None:
        """Create the folder and its parents, if it does not exist."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"cannot create the folder {self.path}: {error.strerror}; choose another with --out"
            ) from error

    def claim(self, options: Mapping[str, Any]) -> None:
        """Write the options of the job, or check that they are those written before."""
        file = self.path / "train.toml"
        if not file.exists():
            write_atomically(file, tomli_w.dumps(options).encode())
            return
        try:
            written = read_toml(file)
        except (OSError, *DAMAGE) as error:
            raise RunError(
                f"{file} is damaged ({error}); delete the folder to start again or choose another with --out"
            ) from error
        if changed := differences(written, options):
            raise RunError(
                f"{self.path} holds a training with other options: {changed}; "
                "use the same to continue it, or choose another folder with --out"
            )

    def write_history(self, history: Sequence[EpochReport]) -> None:
        """All epochs so far, as JSON."""
        text = json.dumps([asdict(report) for report in history], indent=2)
        write_atomically(self.path / "history.json", text.encode())


def save_model(
    path: Path, model: nn.Module, data: Images, *, spec: str = "", options: Mapping[str, Any] | None = None
) -> None:
    """Write the weights with the metadata needed to use them again.

    model and model_options name the network; classes, image_shape and normalization (if images are
    normalised by the package) describe its data. Raises Diverged if weights are not finite.
    """
    check_learnt(model, "the trained network")
    metadata = {
        "model": spec,
        "model_options": json.dumps(dict(options or {})),
        "classes": json.dumps(data.classes),
        "image_shape": json.dumps(data.image_shape),
    }
    if data.normalization is not None:
        metadata["normalization"] = json.dumps(asdict(data.normalization))
    write_tensors(path, model.state_dict(), metadata)
