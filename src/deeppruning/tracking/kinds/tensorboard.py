"""TensorBoard: event files in the folder of the run, looked at with `tensorboard --logdir runs`."""

import io
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from deeppruning.tracking.tracker import TrackedRun, Tracker, Value, register_tracker


@register_tracker
class TensorBoard(Tracker):
    """Writes event files into `folder`: by default RUN/tensorboard.

    A search without a folder of its own writes into runs/search-DATE-TIME/tensorboard.
    """

    name = "tensorboard"
    needs = "tensorboard"

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._writer: Any = None

    def open(self, run: TrackedRun) -> Mapping[str, str]:
        """Open an event file; that of a continued run is one more in the same folder."""
        from torch.utils.tensorboard import SummaryWriter

        own = run.folder or Path("runs") / f"search-{datetime.now():%Y%m%d-%H%M%S}"
        self.folder = self.folder or own / "tensorboard"
        self._writer = SummaryWriter(str(self.folder))
        return {}

    def options(self, values: Mapping[str, Value]) -> None:
        """A table under TEXT of TensorBoard; the tab HPARAMS gets them with the final figures."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in sorted(values.items()))
        self._writer.add_text("options", f"| option | value |\n|---|---|\n{rows}")
        self._writer.flush()

    def metrics(self, values: Mapping[str, float], step: int, axis: str) -> None:
        """Curves under SCALARS of TensorBoard."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def image(self, name: str, png: bytes, step: int) -> None:
        """A plot under IMAGES of TensorBoard."""
        pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
        self._writer.add_image(name, pixels, step, dataformats="HWC")
        self._writer.flush()

    def summary(self, values: Mapping[str, float], text: str) -> None:
        """The table under TEXT, and the figures as scalars of one step."""
        self._writer.add_text("result", text)
        for name, value in values.items():
            self._writer.add_scalar(f"summary/{name}", value, 0)
        self._writer.flush()

    def close(self, status: str) -> None:
        """Close the event file."""
        self._writer.close()
