"""The state of a run, its progress and its remaining time."""

import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from deeppruning.amounts import percent
from deeppruning.roles import KNEE
from deeppruning.runs.facts import ENDED, FINISHED, ScanFigures
from deeppruning.runs.folder import LOCK
from deeppruning.runs.lock import holder_of, read_note
from deeppruning.runs.records import EpochRow


def standing(
    path: Path, data: Mapping[str, Any], *, waiting: int, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The state of a run as one word, whether a process works on it, and a line for people."""
    candidates, picks, total = data["candidates"], data["picks"], facts.get(ENDED.key) or data["generations"]
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
        of = f" of {math.ceil(epochs)}" if epochs else ""
        line = f"{before}: fine-tuning the selected networks, epoch {done}{of} done"
        return {"state": "finetuning", "alive": alive, "status": line}
    generation = max(row["generation"] for row in candidates)
    if picks and picks[-1]["generation"] == generation and waiting:
        generation += 1
    of = f" of {total}" if total else ""
    return {"state": "searching", "alive": alive, "status": f"{before}: generation {generation}{of}"}


def in_use(path: Path) -> bool:
    """Whether a process works on the run, by the note in its lock file.

    The lock itself is not tried: holding it for an instant could turn away a run that is just starting.
    """
    holder = holder_of(read_note(path / LOCK))
    if holder is None:
        return False
    process, machine = holder
    if machine != socket.gethostname():
        return True
    with suppress(PermissionError):  # a process of another user is alive all the same
        try:
            os.kill(process, 0)
        except (ProcessLookupError, OverflowError, ValueError):
            return False
    return True


def verdict(data: Mapping[str, Any]) -> str:
    """The headline of a run before a network can be recommended, in one sentence."""
    if data["state"] == "empty":
        return "No candidate has been evaluated yet; they appear here as soon as they are."
    count = len(data["candidates"])
    tried = f"{count} candidate{'s' if count != 1 else ''}"
    knee = next((entry for entry in data["solutions"] if entry["role"] == KNEE), None)
    if knee is None or knee["flops_pruned"] is None:
        return (
            f"{tried} evaluated so far; the first networks are selected at the end of the first generation."
        )
    value = knee["train_error"]
    error = percent(value) if data["error_is_share"] else f"{value:.4g}"
    lost = ", but its fine-tuning failed" if knee.get("failure") else ""
    saved = percent(knee["flops_pruned"], 1)
    return f"After {tried}, the knee saves {saved} of the FLOPs at an error of {error} in the search{lost}."


def progress(
    data: Mapping[str, Any],
    epochs: Sequence[EpochRow],
    scan: ScanFigures | None = None,
    tuning: Iterable[int] = (),
) -> dict[str, Any] | None:
    """{"what", "done", "of", "seconds_left"} of the current stage of a run; None where nothing runs.

    `tuning` are the candidates being fine-tuned, including one for a target that is not settled yet.
    The time is that of the stage alone: how long fine-tuning takes is unknown before its first epoch.
    """
    if not data["alive"]:
        return None
    if data["state"] == "empty" and scan is not None:
        return _stage_progress("cuts of single layers", len(scan["losses"]), scan["of"], [], 1)
    if data["state"] == "searching" and data["evaluations"]:
        seconds = [row["seconds"] for row in data["candidates"] if row["seconds"]]
        done, of = len(data["candidates"]), data["evaluations"]
        return _stage_progress("candidates", done, of, seconds, _workers_of_run(data, of))
    rounds = data["config"].get("finetune", {}).get("epochs")
    if data["state"] == "finetuning" and rounds:
        picks = {entry["id"] for entry in data["solutions"] if "id" in entry}
        networks = len(picks.union(tuning)) or 1
        trained = [row for row in epochs if row.epoch]  # without epoch 0, before training
        seconds = [row.seconds for row in trained if row.seconds]
        return _stage_progress(
            "epochs", len(trained), networks * math.ceil(rounds), seconds, _workers_of_run(data, networks)
        )
    return None


def _stage_progress(what: str, done: int, of: int, seconds: Sequence[float], workers: int) -> dict[str, Any]:
    left = median(seconds) * max(0, of - done) / workers if seconds else None
    return {"what": what, "done": min(done, of), "of": of, "seconds_left": left}


def _workers_of_run(data: Mapping[str, Any], most: int) -> int:
    """How many processes share the work, as far as the run's options say."""
    workers = data["config"].get("run", {}).get("workers")
    return max(1, min(workers, most)) if type(workers) is int else 1
