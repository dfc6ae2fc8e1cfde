"""Other methods at the same FLOPs, read from the folder of a comparison.

The file is read without the package that writes it: a page need not load every method, nor torch.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deeppruning.errors import RunError
from deeppruning.reporting.plots import KIND_COLORS, OTHER_KIND, can_draw, rivals, save_plot
from deeppruning.reporting.section import SECTIONS, Section
from deeppruning.roles import KNEE
from deeppruning.runs.folder import COMPARISON, RunFolder

FOLDER = "compare"  # of a run, for the comparison that is matched to it
RESULTS = "results.json"
OURS = "deeppruninges"  # the picks of the run that the comparison is matched to
STAND_INS = ("guided", "es-plus")  # shown as ours if no run is matched, the first that is there
LABELS = {OURS: "DeepPruningES"}


def write_rivals_plot(folder: Path) -> Path | None:
    """Write plots/rivals.svg and .png in the folder of a comparison; the path of the SVG, if there is one."""
    figure = rivals({"rivals": read_rivals(folder)}) if can_draw() else None
    return None if figure is None else save_plot(figure, folder / "plots", "rivals")[0]


def read_rivals(folder: Path) -> dict[str, Any] | None:
    """Means by method, the best at the middle target first; None where there are none, or not whole ones."""
    try:
        table = json.loads((folder / RESULTS).read_bytes())
        return {**_comparison_for_page(table), "finetuned": _finetuned_how(folder)}
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        return None


def _finetuned_how(folder: Path) -> str:
    """How all networks were fine-tuned, from the comparison's own options; empty if unknown."""
    try:
        with RunFolder.open(folder, read_only=True, comparison=True) as run:
            return finetuning_words(run.config[COMPARISON])
    except (RunError, LookupError, TypeError, ValueError):
        return ""


def finetuning_words(options: Mapping[str, Any]) -> str:
    """The most important options of fine-tuning.

    >>> finetuning_words({"finetune": {"epochs": 10, "lr": 0.03, "schedule": "cosine", "distill": 0.9}})
    '10 epochs, learning rate 0.03 (cosine), distillation 0.9, all training images'
    """
    tuning, images, tested = options["finetune"], options.get("images"), options.get("test_images")
    epochs, minutes = tuning.get("epochs"), tuning.get("minutes")
    if epochs == 0:
        return "no epochs: as cut and refitted"
    parts = [f"{minutes:g} minutes" if epochs is None else f"{epochs:g} epoch{'s' if epochs > 1 else ''}"]
    rate = f"{tuning['lr']:g}" if "lr" in tuning else "found by trial"
    parts.append(f"learning rate {rate} ({tuning['schedule']})")
    parts += [f"distillation {tuning['distill']:g}"] if tuning.get("distill") else []
    parts += ["from re-drawn weights"] if tuning.get("from_scratch") else []
    parts.append(f"{images:,} training images" if images else "all training images")
    parts += [f"tested on {tested:,} images"] if tested else []
    return ", ".join(parts)


def _comparison_for_page(table: Mapping[str, Any]) -> dict[str, Any]:
    """The methods of a comparison and their points, checked and in plain values."""
    full = _finite_number(table["original"]["flops"])
    targets: list[dict[str, Any]] = [
        {"name": _plain_text(target["name"]), "share": _finite_number(target["flops"] / full)}
        for target in table["targets"]
    ]
    names = [target["name"] for target in targets]
    points: dict[str, dict[str, dict[str, Any]]] = {}
    for mean in table["means"]:
        # A method without a single network at a target has no point there.
        if mean["target"] in names and mean["error_after"] is not None:
            points.setdefault(_plain_text(mean["method"]), {})[mean["target"]] = _point_of_method(mean, full)
    if not points:
        raise ValueError("no method has a network")
    kinds = table["kinds"]
    middle = names.index(KNEE) if KNEE in names else len(names) // 2
    ours = next((name for name in (OURS, *STAND_INS) if name in points), OURS)
    methods: list[dict[str, Any]] = [
        {
            "name": method,
            "label": LABELS.get(method, method),
            "kind": "searches" if method == OURS else _kind_of_method(kinds.get(method)),
            "ours": method == ours,
            "points": [by_target.get(name) for name in names],
        }
        for method, by_target in points.items()
    ]
    seeds = [point["seeds"] for by_target in points.values() for point in by_target.values()]

    def error_at_the_middle(method: Mapping[str, Any]) -> float:
        point = method["points"][middle]
        return math.inf if point is None else float(point["after"])

    return {
        "matched": OURS in points,
        "original_error": _finite_number(table["original"]["test_error"]),
        "targets": targets,
        "middle": middle,
        "seeds": [min(seeds), max(seeds)],
        "methods": sorted(methods, key=error_at_the_middle),
        "searches": _searches_over_seeds(table["searches"]),
    }


def _kind_of_method(kind: Any) -> str:
    return kind if isinstance(kind, str) and kind in KIND_COLORS else OTHER_KIND


def _point_of_method(mean: Mapping[str, Any], full: float) -> dict[str, Any]:
    before, spread = mean["error_before"], mean["error_spread"]
    return {
        "share": _finite_number(mean["flops"] / full),
        "before": None if before is None else _finite_number(before),
        "after": _finite_number(mean["error_after"]),
        "spread": None if spread is None else _finite_number(spread),
        "seeds": int(_finite_number(mean["seeds"])),
        "select_seconds": _finite_number(mean["select_seconds"]),
        "finetune_seconds": _finite_number(mean["finetune_seconds"]),
    }


def _searches_over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each search over its seeds, the largest hypervolume first."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_method.setdefault(_plain_text(row["method"]), []).append(row)
    searches: list[dict[str, Any]] = []
    for method, seeds in by_method.items():
        volumes = [_finite_number(row["hypervolume"]) for row in seeds]
        evaluation = seeds[-1].get("evaluation")
        label = LABELS.get(method, method)
        searches.append(
            {
                # Hypervolumes compare only where candidates were evaluated alike.
                "label": f"{label} (evaluated by {_plain_text(evaluation)})" if evaluation else label,
                "evaluations": statistics.fmean(_finite_number(row["evaluations"]) for row in seeds),
                "hypervolume": statistics.fmean(volumes),
                "spread": statistics.stdev(volumes) if len(volumes) > 1 else None,
            }
        )
    return sorted(searches, key=lambda search: float(search["hypervolume"]), reverse=True)


def _finite_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return float(value)


def _plain_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


SECTIONS.add(
    Section(
        "rivals",
        lambda source, data: {"rivals": read_rivals(source.run.path / FOLDER)},
        {"rivals": rivals},
    ),
    place=60,
)
