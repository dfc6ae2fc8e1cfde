"""What the tests of trackers share: a short run, and one that is stopped on the way."""

from pathlib import Path
from typing import Any

import pytest

import deeppruning as dp
from deeppruning.searching.events import EpochDone, Event, GenerationDone
from search_helpers import digits, quick_finetune, quick_guided, tiny_net


def pruned(run_dir: Path, track: Any, **more: Any) -> dp.Result:
    train, test = digits(60, 40)
    options = {"search": quick_guided(generations=3), "finetune": quick_finetune(epochs=2)}
    return dp.prune(
        tiny_net(), train, test, run_dir=run_dir, workers=1, device="cpu", track=track, **options, **more
    )


class Stop(KeyboardInterrupt):
    """What a test stops a run with."""


def stop_after(generation: int = 0, epoch: int = -1) -> Any:
    """An observer that stops the run after a generation, or after an epoch of fine-tuning."""

    def observer(event: Event) -> None:
        if isinstance(event, GenerationDone) and event.generation == generation:
            raise Stop
        if isinstance(event, EpochDone) and event.report.epoch == epoch:
            raise Stop

    return observer


def stopped_and_resumed(run_dir: Path, track: Any) -> dp.Result:
    """A run that is stopped after its second generation and resumed, by the record it keeps."""
    with pytest.raises(Stop):
        pruned(run_dir, track, observer=stop_after(generation=2))
    train, test = digits(60, 40)
    return dp.resume(run_dir, tiny_net(), train, test, workers=1, device="cpu")
