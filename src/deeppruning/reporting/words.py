"""Where a run stands and what came of it, in sentences."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from deeppruning.roles import KNEE
from deeppruning.runs.facts import FINISHED
from deeppruning.runs.folder import LOCK
from deeppruning.runs.lock import holder_of, read_note


def standing(
    path: Path, data: Mapping[str, Any], *, waiting: int, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The state of a run as one word, whether a process works on it, and a line for people."""
    candidates, picks, total = data["candidates"], data["picks"], data["generations"]
    if facts.get(FINISHED.key):
        return {"state": "finished", "alive": False, "status": "finished"}
    alive = in_use(path)
    before = "running" if alive else "stopped"
    if not candidates:
        return {"state": "empty", "alive": alive, "status": f"{before}: no candidate evaluated yet"}
    if data["curves"] or (picks and picks[-1]["generation"] == total):
        rows = (row["epoch"] for curve in data["curves"] for row in curve["epochs"])
        done = max(rows, default=0)  # epoch 0 is before training
        epochs = data["config"].get("finetune", {}).get("epochs")
        line = f"{before}: fine-tuning the picks, epoch {done} of {epochs} done"
        return {"state": "finetuning", "alive": alive, "status": line}
    generation = max(row["generation"] for row in candidates)
    if picks and picks[-1]["generation"] == generation and waiting:
        generation += 1
    of = f" of {total}" if total else ""
    return {"state": "searching", "alive": alive, "status": f"{before}: generation {generation}{of}"}


def in_use(path: Path) -> bool:
    """Whether a process works on the run, as far as the note in its lock file tells.

    The lock itself is not tried: holding it for an instant could turn away a run that is just starting.
    """
    found = holder_of(read_note(path / LOCK))
    if found is None:
        return False
    process, machine = found
    if machine != socket.gethostname():
        return True
    with suppress(PermissionError):  # a process of another user is alive all the same
        try:
            os.kill(process, 0)
        except (ProcessLookupError, OverflowError, ValueError):
            return False
    return True


def verdict(data: Mapping[str, Any]) -> str:
    """What there is to say before a network can be recommended, in one sentence."""
    if data["state"] == "empty":
        return "No candidate has been evaluated yet; there will be something to choose from once one is."
    count = len(data["candidates"])
    tried = f"{count} candidate{'s' if count != 1 else ''}"
    knee = next((entry for entry in data["solutions"] if entry["role"] == KNEE), None)
    if knee is None or knee["flops_pruned"] is None:
        return f"{tried} evaluated so far; the first picks come at the end of the first generation."
    error = _error(knee["train_error"], data)
    lost = ", but its fine-tuning failed" if knee.get("failure") else ""
    return (
        f"After {tried} the knee saves {_percent(knee['flops_pruned'])} of the FLOPs at an error of {error} "
        f"in the search{lost}."
    )


def _error(value: float, data: Mapping[str, Any]) -> str:
    return _percent(value, 2) if data["error_is_share"] else f"{value:.4g}"


def _percent(value: float, digits: int = 1) -> str:
    return f"{value * 100:.{digits}f} %"
