"""What page and plot show of a comparison with other methods, read from its folder.

The file is read without the package that writes it: a page need not load every method, nor torch.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.errors import RunError
from deeppruning.roles import KNEE
from deeppruning.runs.folder import COMPARISON, RunFolder

FOLDER = "compare"  # of a run, where a comparison matched to it is kept
RESULTS = "results.json"
OURS = "deeppruninges"  # the picks of the run that the comparison is matched to
STAND_INS = ("guided", "es-plus")  # our searches, of which the first there is stands for a matched run
LABELS = {OURS: "DeepPruningES"}
_SCORES = ("l1", "activation", "apoz", "entropy", "span")
_CRITERIA = (*_SCORES, "l1-sensitivity")
# Kinds, and what was of which kind when a comparison did not write that into its file.
KINDS = {
    "criteria": _CRITERIA,
    "criteria with refit": tuple(f"{name}+refit" for name in _CRITERIA),
    "regularisation": ("auto-balanced",),
    "searches": ("es-plus", "es-comma", "guided", OURS),
    "floors": ("random", "random-search", "random-widths", "uniform-width"),
}
OTHER_KIND = "others"


def read_rivals(folder: Path) -> dict[str, Any] | None:
    """Means by method, the best at the middle target first; None where there are none, or not whole ones."""
    try:
        return {**_reduced(json.loads((folder / RESULTS).read_bytes())), "finetuned": _finetuned(folder)}
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return None


def kind_of(method: str, written: Any = None) -> str:
    """The kind of a method, as it is written in the file if that is one of the kinds there are.

    >>> kind_of("auto-balanced"), kind_of("one of your own"), kind_of("one of your own", "searches")
    ('regularisation', 'others', 'searches')
    """
    if isinstance(written, str) and written in KINDS:
        return written
    return next((kind for kind, names in KINDS.items() if method in names), OTHER_KIND)


def _finetuned(folder: Path) -> str:
    """How all networks were fine-tuned, in words from the comparison's own options; empty where unknown."""
    try:
        with RunFolder.open(folder, read_only=True, comparison=True) as opened:
            return finetuning_words(opened.config[COMPARISON])
    except (RunError, LookupError, TypeError, ValueError):
        return ""


def finetuning_words(options: Mapping[str, Any]) -> str:
    """The options of fine-tuning that decide most.

    >>> finetuning_words({"finetune": {"epochs": 10, "lr": 0.03, "schedule": "cosine", "distill": 0.9}})
    '10 epochs, learning rate 0.03 (cosine), distillation 0.9, all training images'
    """
    tuning, images, tested = options["finetune"], options.get("images"), options.get("test_images")
    epochs = int(tuning["epochs"])
    if epochs == 0:
        return "no epochs: as cut and refitted"
    parts = [f"{epochs} epoch{'s' if epochs > 1 else ''}"]
    parts.append(f"learning rate {tuning['lr']:g} ({tuning['schedule']})")
    parts += [f"distillation {tuning['distill']:g}"] if tuning.get("distill") else []
    parts += ["from re-drawn weights"] if tuning.get("from_scratch") else []
    parts.append(f"{images:,} training images" if images else "all training images")
    parts += [f"tested on {tested:,} images"] if tested else []
    return ", ".join(parts)


def _reduced(table: Mapping[str, Any]) -> dict[str, Any]:
    full = _number(table["original"]["flops"])
    targets: list[dict[str, Any]] = [
        {"name": _text(target["name"]), "share": _number(target["flops"] / full)}
        for target in table["targets"]
    ]
    names = [target["name"] for target in targets]
    points: dict[str, dict[str, dict[str, Any]]] = {}
    for mean in table["means"]:
        # A method whose networks all failed has no point: its place says so.
        if mean["target"] in names and mean["error_after"] is not None:
            points.setdefault(_text(mean["method"]), {})[mean["target"]] = _point(mean, full)
    if not points:
        raise ValueError("no method has a network")
    kinds = table.get("kinds")
    kinds = kinds if isinstance(kinds, Mapping) else {}
    middle = names.index(KNEE) if KNEE in names else len(names) // 2
    ours = next((name for name in (OURS, *STAND_INS) if name in points), OURS)
    methods: list[dict[str, Any]] = [
        {
            "name": method,
            "label": LABELS.get(method, method),
            "kind": kind_of(method, kinds.get(method)),
            "ours": method == ours,
            "points": [found.get(name) for name in names],
        }
        for method, found in points.items()
    ]
    seeds = [point["seeds"] for found in points.values() for point in found.values()]
    return {
        "matched": OURS in points,
        "original_error": _number(table["original"]["test_error"]),
        "targets": targets,
        "middle": middle,
        "seeds": [min(seeds), max(seeds)],
        "methods": sorted(methods, key=lambda method: _error_at(method, middle)),
        "searches": _searches(table["searches"]),
    }


def _error_at(method: Mapping[str, Any], place: int) -> float:
    point = method["points"][place]
    return math.inf if point is None else float(point["after"])


def _point(mean: Mapping[str, Any], full: float) -> dict[str, Any]:
    spread = mean["error_spread"]
    return {
        "share": _number(mean["flops"] / full),
        "before": None if mean["error_before"] is None else _number(mean["error_before"]),
        "after": _number(mean["error_after"]),
        "spread": None if spread is None else _number(spread),
        "seeds": int(_number(mean["seeds"])),
        "select_seconds": _number(mean["select_seconds"]),
        "finetune_seconds": _number(mean["finetune_seconds"]),
    }


def _searches(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each search over its seeds, the largest hypervolume first."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_method.setdefault(_text(row["method"]), []).append(row)
    found: list[dict[str, Any]] = []
    for method, own in by_method.items():
        volumes = [_number(row["hypervolume"]) for row in own]
        how = own[-1].get("evaluation")
        label = LABELS.get(method, method)
        found.append(
            {
                # Hypervolumes can be held against each other only where candidates were judged alike.
                "label": f"{label} (judged by {_text(how)})" if how else label,
                "evaluations": statistics.fmean(_number(row["evaluations"]) for row in own),
                "hypervolume": statistics.fmean(volumes),
                "spread": statistics.stdev(volumes) if len(volumes) > 1 else None,
            }
        )
    return sorted(found, key=lambda search: float(search["hypervolume"]), reverse=True)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
