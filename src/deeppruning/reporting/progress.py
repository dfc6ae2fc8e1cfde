"""How far a run at work is, and how long it will still take, from what its history has seen so far."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from deeppruning.runs.facts import ScanFigures


def progress(
    data: Mapping[str, Any],
    epochs: Sequence[Mapping[str, Any]],
    scan: ScanFigures | None = None,
    tuning: Iterable[int] = (),
) -> dict[str, Any] | None:
    """{"what", "done", "of", "seconds_left"} of the stage a run is in; None where nothing goes on.

    `tuning` are the candidates that are fine-tuned, among them one for a target that is not settled yet.
    The time is that of the stage alone: how long fine-tuning takes is not known before its first epoch.
    """
    if not data["alive"]:
        return None
    if data["state"] == "empty" and scan is not None:
        return _stage("cuts of single layers", len(scan["losses"]), scan["of"], None, 1)
    if data["state"] == "searching" and data["evaluations"]:
        seconds = [row["seconds"] for row in data["candidates"] if row["seconds"]]
        done, of = len(data["candidates"]), data["evaluations"]
        return _stage("candidates", done, of, median(seconds) if seconds else None, _workers(data, of))
    rounds = data["config"].get("finetune", {}).get("epochs")
    if data["state"] == "finetuning" and rounds:
        picks = {entry["id"] for entry in data["solutions"] if "id" in entry}
        networks = len(picks.union(tuning)) or 1
        trained = [row for row in epochs if row["epoch"]]  # without epoch 0, before training
        seconds = [row["seconds"] for row in trained if row["seconds"]]
        each = median(seconds) if seconds else None
        return _stage("epochs", len(trained), networks * rounds, each, _workers(data, networks))
    return None


def _stage(what: str, done: int, of: int, each: float | None, workers: int) -> dict[str, Any]:
    left = max(0, of - done)
    return {
        "what": what,
        "done": min(done, of),
        "of": of,
        "seconds_left": None if each is None else each * left / workers,
    }


def _workers(data: Mapping[str, Any], most: int) -> int:
    """How many processes share the work, as far as the run's options tell."""
    told = data["config"].get("run", {}).get("workers")
    return max(1, min(told, most)) if type(told) is int else 1
