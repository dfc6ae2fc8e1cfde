"""The task of thinning by inputs alone: candidates are refitted and judged, and the result is tested."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from deeppruning.graph.calls import as_call, batch_size, part_of
from deeppruning.searching.unlabelled import CHUNK, Unlabelled, drift
from deeppruning.training.checkpoint import EpochReport


@dataclass
class Thinning(Unlabelled):
    """An unlabelled search whose networks are refitted on all its inputs and tested on others, `held_out`."""

    held_out: Any = None

    @property
    def rounds(self) -> int:
        """Nothing is trained."""
        return 0

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> EpochReport | None:
        """Never called."""
        return None

    def test_error(self, model: nn.Module) -> float | None:
        """The mean drift from the original on the inputs that were held out."""
        call = as_call(self.held_out)
        count, error = batch_size(call), 0.0
        model.to(self.device)
        original = self.model.to(self.device)
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            part = part_of(call, rows)
            moved = drift(self._run(original, part), self._run(model, part))
            error += moved.error * (rows.stop - rows.start) / count
        return error
