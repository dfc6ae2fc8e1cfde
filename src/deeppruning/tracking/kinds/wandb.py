"""Weights & Biases: one run of a project; offline unless the user is logged in."""

import io
import netrc
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from deeppruning.tracking.tracker import EPOCH, GENERATION, TrackedRun, Tracker, Value, register_tracker

PROJECT = "deeppruning"


@register_tracker
class WandB(Tracker):
    """Writes into `project`: by default that of WANDB_PROJECT, else "deeppruning".

    WANDB_MODE, WANDB_DIR, WANDB_ENTITY and the other variables of wandb hold. Without WANDB_MODE and without
    a login the run is offline: it is written to RUN/wandb, and `wandb sync` sends it.
    """

    name = "wandb"
    needs = "wandb"

    def __init__(self, project: str | None = None) -> None:
        self.project = project or os.environ.get("WANDB_PROJECT") or PROJECT
        self._run: Any = None

    def check(self) -> None:
        """Crashes of wandb are reported to its makers unless it is told not to."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        super().check()

    def open(self, run: TrackedRun) -> Mapping[str, str]:
        """Begin a wandb run, or continue the one of this id."""
        wandb = self.package()
        id_ = run.kept.get("id") or secrets.token_hex(4)
        mode = os.environ.get("WANDB_MODE") or ("online" if _is_logged_in() else "offline")
        folder = os.environ.get("WANDB_DIR") or run.folder
        if folder is not None:
            Path(folder, "wandb").mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=self.project,
            id=id_,
            name=run.name,
            resume="allow" if run.kept and mode == "online" else None,
            mode=mode,
            dir=folder,
            save_code=False,
            settings=wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True),
        )
        for axis, names in {GENERATION: "search/*", EPOCH: "finetune/*"}.items():
            self._run.define_metric(axis)
            self._run.define_metric(names, step_metric=axis)
        return {"id": id_}

    def options(self, values: Mapping[str, Value]) -> None:
        """The config of the wandb run."""
        self._run.config.update(dict(values), allow_val_change=True)

    def metrics(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Curves of the wandb run, over generations or epochs."""
        self._run.log({**values, axis: step})

    def image(self, name: str, png: bytes, step: int) -> None:
        """A picture of the wandb run for each generation."""
        self._run.log({name: self.package().Image(Image.open(io.BytesIO(png))), GENERATION: step})

    def summary(self, values: Mapping[str, float], text: str) -> None:
        """The summary of the wandb run, and its notes."""
        self._run.summary.update({f"summary/{name}": value for name, value in values.items()})
        self._run.notes = text

    def files(self, paths: Mapping[str, Path]) -> None:
        """One artefact of wandb with all files."""
        artifact = self.package().Artifact(f"run-{self._run.id}", type="pruned-networks")
        for name, path in paths.items():
            artifact.add_file(str(path), name)
        self._run.log_artifact(artifact)

    def close(self, status: str) -> None:
        """Finish the wandb run."""
        self._run.finish(exit_code=0 if status == "finished" else 1)


def _is_logged_in() -> bool:
    """Whether wandb has a key of the user: in the environment or by `wandb login`, which writes a netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    address = os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    files = [Path(os.environ["NETRC"])] if "NETRC" in os.environ else [Path("~/.netrc"), Path("~/_netrc")]
    for file in (file.expanduser() for file in files):
        try:
            if urlsplit(address).hostname in netrc.netrc(file).hosts:
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False
